-- Whoever takes a death writes it into the log of its process, as JobFailed: the worker that
-- made the last try, else a janitor. Nobody else gets it, so each is told once; and one whose
-- transaction took long is found when it is committed.

CREATE FUNCTION mailgres.take_deaths(
    p_limit int DEFAULT 1000, p_ids uuid[] DEFAULT NULL, OUT handled int, OUT told jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    WITH taken AS (
        DELETE FROM mailgres.deaths d
        WHERE (d.queue_id, d.log_id) IN (
            SELECT x.queue_id, x.log_id FROM mailgres.deaths x
            WHERE p_ids IS NULL OR x.queue_id = ANY (p_ids)
            LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING d.queue_id, d.log_id
    )
    SELECT count(*), coalesce(jsonb_agg(jsonb_build_object(
               'jobId', l.queue_id, 'companyId', l.tenant_id, 'attempt', l.attempt,
               'maxAttempts', q.max_retries + 1, 'errorCode', l.error_code, 'errorReason', l.error_message,
               'errorClass', l.error_class, 'deadReason', l.dead_reason, 'template', l.template_type,
               'provider', l.provider) ORDER BY l.id), '[]')
    INTO handled, told
    FROM taken t
    JOIN public.email_logs l ON l.queue_id = t.queue_id AND l.id = t.log_id
    JOIN public.email_queue q ON q.id = t.queue_id;
END
$$;

COMMENT ON FUNCTION mailgres.take_deaths(int, uuid[]) IS
    'Takes deaths that nobody has told of, of these emails or of any; returns how many, and what to log.';
