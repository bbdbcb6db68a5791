-- Parts of the printed script; what is in braces is filled in.

-- head --
-- mailgres {version}: the schema at {head}{start}.
-- Run it as the owner of the database: psql -v ON_ERROR_STOP=1 -f this-file
-- Running it again changes nothing. If it stops at a lock, nothing was changed: run it again.

-- revision --
-- ==== revision {name}

DO $mailgres$
DECLARE
    v_current text := (SELECT v.version_num FROM mailgres.schema_version v);
BEGIN
    IF v_current = ANY ({later}) THEN
        RAISE NOTICE 'revision {name} is there already';
        RETURN;
    ELSIF v_current IS DISTINCT FROM {before} THEN
        RAISE EXCEPTION 'the database is at revision %, which is not the one before {name}', coalesce(v_current, 'none')
            USING HINT = 'Nothing was changed. `mailgres migrate --check` says which revision a database has.';
    END IF;
{run}
    DELETE FROM mailgres.schema_version;
    INSERT INTO mailgres.schema_version (version_num) VALUES ('{name}');
END
$mailgres$;

-- objects --
-- ==== functions, views, triggers and comments: those that differ are replaced

{machinery}

DO $mailgres$
DECLARE
    v_wanted   mailgres.wanted_object[] := ARRAY[
{rows}];
    v_changed  int;
BEGIN
    v_changed := mailgres.replace_objects(v_wanted);
    PERFORM mailgres.record_release('{version}', '{works_since}', '{digest}', v_wanted);
    IF v_changed = 0 THEN
        RAISE NOTICE 'nothing to do: the functions, views and triggers are those of mailgres {version}';
    ELSE
        RAISE NOTICE '% functions, views, triggers and comments were created, replaced or dropped', v_changed;
        NOTIFY pgrst, 'reload schema';
    END IF;
END
$mailgres$;

COMMIT;
