-- Dead letters move to an archive after some time, with the whole row and the whole log, and are
-- deleted from there later.
--
-- jit = off goes with enable_seqscan = off: reading a table of one row gets a prohibitive cost,
-- and up to PostgreSQL 17 that alone would make every call compile for a second.

CREATE FUNCTION mailgres.archive_dead_letters(p_limit int DEFAULT 200) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := (SELECT mailgres.now() - s.dead_letter_ttl FROM mailgres.settings s);
    v_ids    uuid[];
BEGIN
    -- Locked by a separate statement: the next ones then see everything that was logged about
    -- these emails, because a session that logs holds the lock of the row.
    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at <= v_before
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) = 0 THEN
        RETURN 0;
    END IF;

    INSERT INTO mailgres.dead_letters AS d
        (queue_id, tenant_id, template_type, dead_reason, error_code, dead_at, archived_at, expires_at, email, log)
    SELECT q.id, q.tenant_id, q.template_type, q.dead_reason, q.error_code, q.dead_at,
           mailgres.now(), mailgres.now() + s.archive_ttl,
           to_jsonb(q) || jsonb_build_object('attachments', (
               SELECT coalesce(jsonb_agg(jsonb_build_object(
                          'filename', a.filename, 'content_type', a.content_type,
                          'bytes', octet_length(a.content)) ORDER BY a.position), '[]')
               FROM mailgres.attachments a WHERE a.queue_id = q.id)),
           (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]')
            FROM public.email_logs l WHERE l.queue_id = q.id)
    FROM public.email_queue q
    CROSS JOIN mailgres.settings s
    WHERE q.id = ANY (v_ids)
    -- An archived email was put back into the queue by hand, and it died again.
    ON CONFLICT (queue_id) DO UPDATE
        SET dead_reason = excluded.dead_reason, error_code = excluded.error_code, dead_at = excluded.dead_at,
            archived_at = excluded.archived_at, expires_at = excluded.expires_at,
            email = excluded.email, log = d.log || excluded.log;

    -- Where no notifier runs, nothing may grow without limit.
    DELETE FROM mailgres.dead_letters_to_notify d WHERE d.at <= v_before;
    RETURN mailgres.delete_emails(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.archive_dead_letters(int) IS
    'Moves emails that have been dead for long to mailgres.dead_letters; returns how many.';

-- Deletes emails with their attachments (ON DELETE CASCADE), their log and the messages that the
-- provider capture kept. The rollups still count them. Events of archived emails stay as long as
-- those are in the archive.
CREATE FUNCTION mailgres.delete_emails(p_ids uuid[]) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    DELETE FROM mailgres.captured c WHERE c.queue_id = ANY (p_ids);
    DELETE FROM mailgres.dead_letters_to_log d WHERE d.queue_id = ANY (p_ids);
    DELETE FROM public.email_logs l WHERE l.queue_id = ANY (p_ids);
    PERFORM mailgres.delete_events(ARRAY(
        SELECT i.id FROM unnest(p_ids) i(id)
        WHERE NOT EXISTS (SELECT FROM mailgres.dead_letters d WHERE d.queue_id = i.id)));
    DELETE FROM public.email_queue q WHERE q.id = ANY (p_ids);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.delete_emails(uuid[]) IS
    'Deletes emails with everything that belongs to them; returns how many.';

CREATE FUNCTION mailgres.delete_events(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM public.email_events e WHERE e.queue_id = ANY (p_ids);
    DELETE FROM mailgres.deliveries d WHERE d.queue_id = ANY (p_ids);
END
$$;

COMMENT ON FUNCTION mailgres.delete_events(uuid[]) IS 'Deletes the events of emails and the state that they gave.';

CREATE FUNCTION mailgres.purge_archive(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT x.queue_id
        FROM mailgres.dead_letters x
        WHERE x.expires_at <= mailgres.now()
        ORDER BY x.expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
    DELETE FROM mailgres.dead_letters d WHERE d.queue_id = ANY (v_ids);
    -- an email that was put back into the queue keeps its events
    PERFORM mailgres.delete_events(ARRAY(
        SELECT i.id FROM unnest(v_ids) i(id)
        WHERE NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = i.id)));
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.purge_archive(int) IS
    'Deletes archived emails that have expired; returns how many.';
