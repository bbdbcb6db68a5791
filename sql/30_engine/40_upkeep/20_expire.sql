-- Ends emails that have expired. An uncertain email dies as uncertain, not as expired: a person
-- has to know that it may have been delivered.

CREATE FUNCTION mailgres.expire_these(p_ids uuid[]) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    UPDATE public.email_queue q
    SET status = 'failed',
        ready = false,
        dead_at = mailgres.now(),
        dead_reason = CASE WHEN q.uncertain_since IS NULL THEN 'expired' ELSE 'uncertain' END,
        error_message = format('not sent before it expired at %s', mailgres.time_text(q.expires_at))
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), ''),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids)
      AND q.expires_at <= mailgres.now() AND (q.uncertain_since IS NULL OR q.batch_id IS NULL)
      AND (q.status = 'pending' OR (q.status = 'sending' AND q.attempt_started_at IS NULL));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.expire_these(uuid[]) IS
    'Ends those of the given emails that have expired and whose call has not started; returns how many.';

CREATE FUNCTION mailgres.expire(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN mailgres.expire_these(ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now() AND q.expires_at <= mailgres.now()
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
END
$$;

COMMENT ON FUNCTION mailgres.expire(int) IS
    'Ends waiting emails that have expired; returns how many.';
