-- A process that takes a dead letter logs it as JobFailed: the worker that made the last attempt, else
-- the notifier. No other process gets it, so each is logged once.

CREATE FUNCTION mailgres.log_dead_letters(p_limit int DEFAULT 1000, p_ids uuid[] DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_to_log jsonb;
BEGIN
    WITH locked AS (  -- a CTE, because a subquery may run, and so lock, more than once
        SELECT x.queue_id, x.log_id FROM mailgres.dead_letters_to_log x
        WHERE p_ids IS NULL OR x.queue_id = ANY (p_ids)
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM mailgres.dead_letters_to_log d USING locked x
        WHERE d.queue_id = x.queue_id AND d.log_id = x.log_id
        RETURNING d.queue_id, d.log_id
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'event', 'JobFailed', 'jobId', l.queue_id, 'companyId', l.tenant_id, 'attempt', l.attempt,
               'maxAttempts', q.max_retries + 1, 'errorCode', l.error_code, 'errorReason', l.error_message,
               'errorClass', l.error_class, 'deadReason', l.dead_reason, 'template', l.template_type,
               'provider', l.provider) ORDER BY l.id), '[]')
    INTO v_to_log
    FROM taken t
    JOIN public.email_logs l ON l.queue_id = t.queue_id AND l.id = t.log_id
    JOIN public.email_queue q ON q.id = t.queue_id;
    RETURN v_to_log;
END
$$;

COMMENT ON FUNCTION mailgres.log_dead_letters(int, uuid[]) IS
    'Takes dead letters that are not logged yet, of these emails or of any; returns what to log.';

-- All counts at once: a notification has the sum, and there are few rows for each statement.
CREATE FUNCTION mailgres.notify_dead_letters(p_state mailgres.notification_state, p_email text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
DECLARE
    v         record;
    v_to_log  jsonb := '[]';
BEGIN
    IF p_state.dead_letters_at > mailgres.now() - interval '15 minutes' THEN
        RETURN '[]';
    END IF;
    FOR v IN
        WITH taken AS (
            DELETE FROM mailgres.dead_letters_to_notify d RETURNING d.*
        ), counts AS (
            SELECT a.audience, a.email, t.dead_reason AS reason, t.error_code AS code, t.template_type AS template,
                   sum(t.emails) AS emails,
                   row_number() OVER (PARTITION BY a.audience
                                      ORDER BY sum(t.emails) DESC, t.dead_reason, t.error_code, t.template_type) AS number
            FROM taken t
            LEFT JOIN mailgres.tenants c ON c.tenant_id = t.tenant_id AND mailgres.is_address(c.contact_email)
            CROSS JOIN LATERAL (
                VALUES ('operators', p_email), ('tenant:' || c.tenant_id, c.contact_email)) a(audience, email)
            WHERE a.audience IS NOT NULL
            GROUP BY 1, 2, 3, 4, 5
        )
        SELECT c.audience, c.email, sum(c.emails) AS emails,
               jsonb_agg(to_jsonb(c) - '{audience,email,number}'::text[] ORDER BY c.number) FILTER (WHERE c.number <= 10)
                   AS reasons
        FROM counts c
        GROUP BY 1, 2 ORDER BY 1
    LOOP
        v_to_log := v_to_log || mailgres.add_notification(
            jsonb_build_object('event', 'DeadLetters', 'audience', v.audience, 'at', mailgres.now(),
                               'new', v.emails, 'reasons', v.reasons),
            v.email);
    END LOOP;
    UPDATE mailgres.notification_state n SET dead_letters_at = mailgres.now() WHERE v_to_log <> '[]';
    RETURN v_to_log;
END
$$;

COMMENT ON FUNCTION mailgres.notify_dead_letters(mailgres.notification_state, text) IS
    'Adds notifications of new dead letters for operators and tenant contacts, at most every 15 minutes; returns what to log.';
