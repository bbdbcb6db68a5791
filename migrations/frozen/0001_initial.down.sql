-- 0001_initial, undone: drops what it made, and all mail with it. Never edited by hand.
-- Nothing of the application's is dropped: a view or a foreign key of its own that needs one of
-- our tables stops this with an error that names it.

SET LOCAL client_min_messages = warning;

DO $$
DECLARE
    v_views     text;
    v_routines  text;
BEGIN
    SELECT string_agg(substr(o.object, 6), ', ') FILTER (WHERE o.object LIKE 'view public.%'),
           string_agg(substr(o.object, 10), ', ') FILTER (WHERE o.object LIKE 'function public.%')
    INTO v_views, v_routines
    FROM mailgres.schema_objects o;
    -- One statement for all, because they depend on each other.
    EXECUTE coalesce('DROP VIEW IF EXISTS ' || v_views, '');
    -- Everything in the schema but the table of the migrations, which is still in use.
    ALTER SCHEMA mailgres RENAME TO mailgres_dropped;
    CREATE SCHEMA mailgres;
    ALTER TABLE mailgres_dropped.schema_version SET SCHEMA mailgres;
    DROP SCHEMA mailgres_dropped CASCADE;
    -- A function with a type of the dropped schema in its signature is already gone.
    EXECUTE coalesce('DROP ROUTINE IF EXISTS ' || v_routines, '');
END
$$;

DROP TABLE
    public.email_events,
    public.email_logs,
    public.email_queue,
    public.email_suppressions,
    public.email_templates;
