-- Emails that were picked but cannot be sent now are settled or deferred, so that they do not
-- block the next claim of their tenant. The conditions do not name the status, so that no plan
-- can use its index instead of the ids.

CREATE FUNCTION mailgres.settle_unsendable(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM mailgres.expire_these(p_ids);

    -- Suppressed: cancelled, or dead if it is uncertain.
    UPDATE public.email_queue q
    SET status = CASE WHEN q.uncertain_since IS NULL THEN 'cancelled' ELSE 'failed' END,
        ready = false,
        dead_at = CASE WHEN q.uncertain_since IS NOT NULL THEN mailgres.now() END,
        dead_reason = CASE WHEN q.uncertain_since IS NOT NULL THEN 'uncertain' END,
        error_message = 'the address is suppressed: ' || x.reason,
        error_code = 'suppressed', error_class = 'permanent', error_detail = NULL,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    FROM public.email_queue y
    CROSS JOIN LATERAL (
        SELECT s.reason FROM public.email_suppressions s
        WHERE s.recipient_email = mailgres.canonical_address(y.recipient_email) AND s.tenant_id IN ('*', y.tenant_id)
          AND mailgres.suppresses(s, y.ignore_suppression)
        ORDER BY mailgres.suppression_rank(s.reason) DESC LIMIT 1) x
    WHERE q.id = ANY (p_ids) AND y.id = q.id AND y.id = ANY (p_ids)
      AND q.attempt_started_at IS NULL AND q.dead_at IS NULL AND NOT mailgres.is_in_uncertain_batch(q);

    -- Uncertain, and its key no longer protects it or no worker has had its provider for days:
    -- a person has to decide.
    UPDATE public.email_queue q
    SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
        error_message = 'an earlier attempt may have arrived, and it is too late to repeat it safely'
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), '')
    FROM (
        SELECT x.id, x.provider AS name, p.idempotent, p.key_window, s.config_wait_total AS dead_after
        FROM public.email_queue x
        CROSS JOIN mailgres.settings s
        LEFT JOIN mailgres.providers p ON p.name = x.provider
        WHERE x.id = ANY (p_ids)
    ) p
    WHERE q.id = ANY (p_ids) AND q.id = p.id
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL
      AND (p.idempotent AND q.uncertain_since + p.key_window <= mailgres.now()
           OR q.uncertain_since + p.dead_after <= mailgres.now());

    -- Only its own provider may repeat it, and that one is not usable now. Nothing wakes these
    -- emails if it becomes usable early, so they are checked again from time to time.
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
    'Settles emails that must not be sent now: expired, suppressed, or uncertain at a provider that cannot repeat them.';
