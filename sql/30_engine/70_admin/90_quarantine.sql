-- While the queue is quarantined nothing is claimed, except for providers that only capture.
-- Enqueuing works, and so does everything that people do by hand.

CREATE FUNCTION mailgres.quarantine_state()
    RETURNS TABLE (quarantined boolean, because text, since timestamptz, anywhere boolean, open_emails bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT mailgres.is_quarantined(),
           coalesce(h.quarantine_reason, CASE WHEN mailgres.is_quarantined() THEN
               'this database is a copy: it was restored from a dump, made from a template, or replicated' END),
           h.quarantined_since, h.database IS NULL,
           (SELECT count(*) FROM public.email_queue q WHERE q.status IN ('pending', 'sending') AND (q.ready OR q.due_at IS NOT NULL))
    FROM mailgres.home h
$$;

COMMENT ON FUNCTION mailgres.quarantine_state() IS
    'Whether the queue is quarantined, why, since when by hand, whether its copies may send, and how many emails wait.';

CREATE FUNCTION mailgres.quarantine(p_reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.home h
    SET quarantined_since = mailgres.now(),
        quarantine_reason = left(coalesce(nullif(p_reason, ''), 'quarantined by hand'), 500)
    WHERE h.quarantined_since IS NULL;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.quarantine(text) IS
    'Sends nothing from now on, until release_quarantine(); false if it was quarantined by hand before.';

CREATE FUNCTION mailgres.release_quarantine(p_anywhere boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before constant boolean := mailgres.is_quarantined();
BEGIN
    UPDATE mailgres.home h
    SET quarantined_since = NULL, quarantine_reason = NULL,
        database = CASE WHEN coalesce(p_anywhere, false) THEN NULL ELSE mailgres.current_home() END;
    PERFORM pg_notify('mailgres', '');
    RETURN v_before;
END
$$;

COMMENT ON FUNCTION mailgres.release_quarantine(boolean) IS
    'Lets this database send; false if it could before. p_anywhere: copies of it may send, too, for templates of test databases.';
