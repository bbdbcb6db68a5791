-- What was picked but cannot be sent now is settled or put off, so that it does
-- not stand in the way of its tenant's next claim. The conditions name no status, so
-- that no plan can go by the index on it: only by the ids.

CREATE FUNCTION mailgres.settle_unsendable(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM mailgres.expire_these(p_ids);

    -- Suppressed: cancelled, unless an earlier try may have arrived.
    UPDATE public.email_queue q
    SET status = CASE WHEN q.uncertain_since IS NULL THEN 'cancelled' ELSE 'failed' END,
        ready = false,
        dead_at = CASE WHEN q.uncertain_since IS NOT NULL THEN mailgres.now() END,
        dead_reason = CASE WHEN q.uncertain_since IS NOT NULL THEN 'uncertain' END,
        error_message = 'the address is suppressed',
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids)
      AND q.attempt_started_at IS NULL AND q.dead_at IS NULL AND NOT mailgres.is_in_uncertain_batch(q)
      AND EXISTS (
          SELECT FROM public.email_suppressions s
          WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id));

    -- An earlier try may have arrived. Its key no longer protects, or nobody has had its
    -- provider for days: only a person can decide.
    UPDATE public.email_queue q
    SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
        error_message = 'an earlier try may have arrived, and it is too late to repeat it safely'
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), '')
    FROM (
        SELECT x.id, x.provider AS name, p.idempotent, p.key_window, s.config_wait_total AS given_up_after
        FROM public.email_queue x
        CROSS JOIN mailgres.settings s
        LEFT JOIN mailgres.providers p ON p.name = x.provider
        WHERE x.id = ANY (p_ids)
    ) p
    WHERE q.id = ANY (p_ids) AND q.id = p.id
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL
      AND (p.idempotent AND q.uncertain_since + p.key_window <= mailgres.now()
           OR q.uncertain_since + p.given_up_after <= mailgres.now());

    -- Its provider is the only one that may repeat it, and is not open now. Nobody tells
    -- these emails when it opens before its time, so they look again now and then.
    UPDATE public.email_queue q
    SET ready = false,
        next_retry_at = least(mailgres.now() + interval '15 minutes', greatest(
            mailgres.now() + interval '1 minute',
            (SELECT greatest(p.circuit_until, p.limited_until, p.paused_until)
             FROM mailgres.providers p WHERE p.name = q.provider)))
    WHERE q.id = ANY (p_ids) AND q.next_retry_at <= mailgres.now()
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL;
END
$$;

COMMENT ON FUNCTION mailgres.settle_unsendable(uuid[]) IS
    'Settles emails that must not be sent now: expired, suppressed, or fixed to a provider that cannot repeat them.';
