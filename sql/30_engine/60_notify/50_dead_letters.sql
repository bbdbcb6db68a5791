-- Whoever takes a death writes it into the log of its process, as JobFailed: the worker that
-- made the last try, else a janitor. Nobody else gets it, so each is told once; and one whose
-- transaction took long is found when it is committed.

CREATE FUNCTION mailgres.log_dead_letters(
    p_limit int DEFAULT 1000, p_ids uuid[] DEFAULT NULL, OUT handled int, OUT to_log jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    WITH taken AS (
        DELETE FROM mailgres.dead_letters_to_log d
        WHERE (d.queue_id, d.log_id) IN (
            SELECT x.queue_id, x.log_id FROM mailgres.dead_letters_to_log x
            WHERE p_ids IS NULL OR x.queue_id = ANY (p_ids)
            LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING d.queue_id, d.log_id
    )
    SELECT count(*), coalesce(jsonb_agg(jsonb_build_object(
               'jobId', l.queue_id, 'companyId', l.tenant_id, 'attempt', l.attempt,
               'maxAttempts', q.max_retries + 1, 'errorCode', l.error_code, 'errorReason', l.error_message,
               'errorClass', l.error_class, 'deadReason', l.dead_reason, 'template', l.template_type,
               'provider', l.provider) ORDER BY l.id), '[]')
    INTO handled, to_log
    FROM taken t
    JOIN public.email_logs l ON l.queue_id = t.queue_id AND l.id = t.log_id
    JOIN public.email_queue q ON q.id = t.queue_id;
END
$$;

COMMENT ON FUNCTION mailgres.log_dead_letters(int, uuid[]) IS
    'Takes deaths that nobody has told of, of these emails or of any; returns how many, and what to log.';

-- What the dead letters of a time have in common, most frequent first.
CREATE FUNCTION mailgres.dead_reasons(p_since timestamptz, p_until timestamptz, p_tenant text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]')
        FROM (
            SELECT d.dead_reason AS reason, d.error_code AS code, d.template_type AS template, count(*) AS emails
            FROM (
                SELECT q.dead_reason, q.error_code, q.template_type
                FROM public.email_queue q
                WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
                  AND q.template_type <> 'mailgres_alert' AND (p_tenant IS NULL OR q.tenant_id = p_tenant)
                ORDER BY q.due_at DESC LIMIT 10000
            ) d
            GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT 10
        ) r);
END
$$;

COMMENT ON FUNCTION mailgres.dead_reasons(timestamptz, timestamptz, text) IS
    'Reasons, codes and templates of the dead letters of a time.';

-- Counts those that are new, for whom they concern.
CREATE FUNCTION mailgres.count_new_dead_letters(p_since timestamptz, p_until timestamptz) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH dead AS MATERIALIZED (
        SELECT q.tenant_id::text AS tenant_id, count(*) AS emails
        FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
          AND q.template_type <> 'mailgres_alert'
        GROUP BY 1
    ), of_tenants AS (
        INSERT INTO mailgres.notification_state AS n (audience, seen_until, waiting)
        SELECT 'tenant:' || d.tenant_id, p_since, d.emails
        FROM dead d JOIN mailgres.tenants t ON t.tenant_id = d.tenant_id
        WHERE mailgres.is_address(t.contact_email)
        ON CONFLICT (audience) DO UPDATE
            SET waiting = n.waiting + excluded.waiting,
                seen_until = CASE WHEN n.waiting = 0 THEN excluded.seen_until ELSE n.seen_until END
    )
    UPDATE mailgres.notification_state n
    SET waiting = n.waiting + (SELECT coalesce(sum(d.emails), 0) FROM dead d), seen_until = p_until
    WHERE n.audience = 'operators'
    RETURNING (SELECT coalesce(sum(d.emails), 0) FROM dead d) INTO v_count;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.count_new_dead_letters(timestamptz, timestamptz) IS
    'Counts new dead letters for the operators and for tenants with a contact.';

-- Emails die at the start of the transaction that gives them up, and are seen at its end.
-- One that has only read so far may yet do so; but a long report, or a session whose times
-- are hidden from the owner of this function, holds up nobody for more than a minute.
CREATE FUNCTION mailgres.dead_letters_complete_until() RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN mailgres.now() - (
    SELECT greatest(interval '10 seconds', interval '1 microsecond' + max(
        least(mailgres.now() - a.xact_start,
              CASE WHEN a.backend_xid IS NULL THEN interval '1 minute' ELSE interval '1 hour' END)))
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND a.backend_type IS DISTINCT FROM 'autovacuum worker'  -- nothing dies of a vacuum
      AND (a.xact_start IS NOT NULL OR a.query = '<insufficient privilege>'));

COMMENT ON FUNCTION mailgres.dead_letters_complete_until() IS
    'Up to when all that died are seen; what takes longer than an hour is not waited for.';

CREATE FUNCTION mailgres.notify_dead_letters(
    p_limit int DEFAULT 10000, p_email text DEFAULT NULL, OUT handled int, OUT to_log jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    -- Who died in a transaction that is not over yet is found the next time.
    v_until  timestamptz := mailgres.dead_letters_complete_until();
    v_since  timestamptz := (mailgres.lock_notification_state()).seen_until;
    v_first  timestamptz;
    v        record;
BEGIN
    to_log := '[]';
    v_first := (
        SELECT q.due_at FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > v_since AND q.due_at <= v_until
        ORDER BY q.due_at OFFSET p_limit - 1 LIMIT 1);
    handled := mailgres.count_new_dead_letters(v_since, greatest(coalesce(v_first, v_until), v_since));
    IF v_first IS NOT NULL THEN
        handled := greatest(handled, p_limit);
        RETURN;  -- there are more: tell of all of them at once
    END IF;

    FOR v IN
        SELECT n.*, t.tenant_id, t.contact_email, n.audience = 'operators' AS is_operators
        FROM mailgres.notification_state n
        LEFT JOIN mailgres.tenants t ON n.audience = 'tenant:' || t.tenant_id
        WHERE n.waiting > 0 AND (n.notified_at IS NULL OR n.notified_at <= mailgres.now() - interval '15 minutes')
        ORDER BY n.audience
        FOR UPDATE OF n
    LOOP
        to_log := to_log || mailgres.notify(
            jsonb_build_object(
                'event', 'DeadLetters', 'audience', v.audience, 'at', mailgres.now(), 'new', v.waiting,
                'reasons', mailgres.dead_reasons(
                    CASE WHEN v.is_operators THEN v.notified_until ELSE v.seen_until END, v_until, v.tenant_id)),
            CASE WHEN v.is_operators THEN p_email ELSE v.contact_email END);
        UPDATE mailgres.notification_state n SET waiting = 0, notified_at = mailgres.now(), notified_until = v_until WHERE n.audience = v.audience;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.notify_dead_letters(int, text) IS
    'Tells people of new dead letters: enqueues emails and news; returns how many were new, and what to log.';
