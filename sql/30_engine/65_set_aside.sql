-- What was picked but cannot be sent now is settled or put off, so that it does
-- not stand in the way of its tenant's next claim. The conditions name no status, so
-- that no plan can go by the index on it: only by the ids.

CREATE FUNCTION mailgres.set_aside(p_ids uuid[]) RETURNS void
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
      AND q.begun_at IS NULL AND q.dead_at IS NULL
      AND EXISTS (
          SELECT FROM public.email_suppressions s
          WHERE s.recipient_email = lower(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id));

    -- An earlier try may have arrived. Its key no longer protects, so only a person
    -- can decide.
    UPDATE public.email_queue q
    SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
        error_message = 'an earlier try may have arrived, and it is too late to repeat it safely'
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), '')
    FROM mailgres.providers p
    WHERE q.id = ANY (p_ids)
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL
      AND p.name = q.provider AND p.idempotent
      AND q.first_attempt_at + p.key_window <= mailgres.now();

    -- Its provider is the only one that may repeat it, and is not open now.
    UPDATE public.email_queue q
    SET ready = false, next_retry_at = mailgres.now() + interval '1 minute'
    WHERE q.id = ANY (p_ids)
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL;
END
$$;

COMMENT ON FUNCTION mailgres.set_aside(uuid[]) IS
    'Settles emails that must not be sent now: expired, suppressed, or fixed to a provider that cannot repeat them.';
