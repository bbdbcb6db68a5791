-- The outcome of tries, many at once, each guarded by its fencing token. p_outcomes
-- is an array of objects:
--
--   id, token             which email, and the claim under which it was tried
--   outcome               sent, or the class of the fault: transient, rate, quota,
--                         config, permanent, ambiguous; or uncertain (the provider
--                         saw this key before with other content)
--   provider_message_id   of a sent email
--   code, message, detail of a fault; the message must not quote addresses
--   duration_ms           how long the provider took
--   retry_at              when the provider said to come back (rate, quota, config)
--
-- Returns a row for every outcome: what became of the email, or in `refused` the
-- SQLSTATE for which nothing was changed (MG030: the lease was lost).

CREATE FUNCTION mailgres.finish(p_outcomes jsonb)
    RETURNS TABLE (id uuid, status text, retries int, next_retry_at timestamptz, dead_reason text, refused text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF p_outcomes IS NULL OR jsonb_typeof(p_outcomes) <> 'array' OR p_outcomes @? '$[*] ? (
        !(@.outcome == "sent" && @.provider_message_id != "" && @.provider_message_id != null)
        && !(@.outcome == "transient" || @.outcome == "rate" || @.outcome == "quota"
             || @.outcome == "config" || @.outcome == "permanent" || @.outcome == "ambiguous"
             || @.outcome == "uncertain"))' THEN
        PERFORM mailgres.refuse('MG031', 'an outcome is not understood',
            'Give an array of objects; outcome is sent (with provider_message_id) or the class of the fault.');
    END IF;

    RETURN QUERY
    WITH told AS MATERIALIZED (
        SELECT o.* FROM jsonb_to_recordset(p_outcomes) AS o(
            id uuid, token uuid, outcome text, provider_message_id text, code text, message text,
            detail text, duration_ms int, retry_at timestamptz)
    ), faults AS MATERIALIZED (
        SELECT o.id, v.*
        FROM told o
        JOIN public.email_queue q ON q.id = o.id AND q.lease_token = o.token
        CROSS JOIN LATERAL mailgres.judge(q, o.outcome, o.retry_at) v
        WHERE o.outcome <> 'sent'
    ), done AS (
        UPDATE public.email_queue q
        SET status = CASE WHEN o.outcome = 'sent' THEN 'sent'
                          WHEN f.dead_reason IS NULL THEN 'pending'
                          ELSE 'failed' END,
            retries = q.retries + coalesce(f.spent, 0),
            next_retry_at = coalesce(f.next_retry_at, q.next_retry_at),
            sent_at = CASE WHEN o.outcome = 'sent' THEN mailgres.now() END,
            dead_at = CASE WHEN f.dead_reason IS NOT NULL THEN mailgres.now() END,
            dead_reason = f.dead_reason,
            uncertain_since = f.uncertain_since,
            parked_since = f.parked_since,
            provider_message_id = o.provider_message_id,
            resend_id = CASE WHEN q.provider LIKE 'resend%' THEN o.provider_message_id END,
            error_class = CASE o.outcome WHEN 'sent' THEN NULL
                                         WHEN 'uncertain' THEN 'ambiguous'
                                         ELSE o.outcome END,
            error_code = o.code,
            error_message = CASE WHEN o.outcome <> 'sent' THEN
                coalesce(nullif(o.message, ''), nullif(o.code, ''), o.outcome || ' fault') END,
            error_detail = o.detail,
            last_duration_ms = o.duration_ms,
            lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, begun_at = NULL
        FROM told o
        LEFT JOIN faults f ON f.id = o.id
        WHERE q.id = o.id AND q.status = 'sending' AND q.lease_token = o.token
        RETURNING q.id, q.status, q.retries, q.next_retry_at, q.dead_reason
    )
    SELECT o.id, d.status::text, d.retries::int, d.next_retry_at, d.dead_reason::text,
           CASE WHEN d.id IS NULL THEN 'MG030' END
    FROM told o
    LEFT JOIN done d ON d.id = o.id;
END
$$;

COMMENT ON FUNCTION mailgres.finish(jsonb) IS
    'Writes the outcomes of many tries, each only if its lease is still held.';
