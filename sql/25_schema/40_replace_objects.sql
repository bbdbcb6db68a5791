-- If CREATE OR REPLACE cannot change an object that way, it is dropped first.
CREATE FUNCTION mailgres.make_object(p_kind text, p_id oid, p_statement text) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET check_function_bodies = on
AS $$
DECLARE
    v_dropped jsonb := '[]';
BEGIN
    IF p_id IS NOT NULL AND p_statement LIKE 'CREATE CONSTRAINT%' THEN  -- there is no OR REPLACE for it
        v_dropped := mailgres.drop_object(p_kind, p_id);
        EXECUTE p_statement;
    ELSIF p_id IS NULL THEN
        EXECUTE p_statement;
    ELSE
        BEGIN
            EXECUTE p_statement;
        EXCEPTION WHEN invalid_function_definition OR invalid_table_definition OR wrong_object_type THEN
            v_dropped := mailgres.drop_object(p_kind, p_id);
            EXECUTE p_statement;
        END;
    END IF;
    RETURN v_dropped;
END
$$;

COMMENT ON FUNCTION mailgres.make_object(text, oid, text) IS
    'Creates or replaces a function, view or trigger, and returns what had to be dropped for it.';

CREATE FUNCTION mailgres.record_objects(p_wanted mailgres.wanted_object[]) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH found AS MATERIALIZED (
    SELECT f.* FROM mailgres.find_objects(p_wanted) f WHERE f.place IS NOT NULL
), gone AS (
    DELETE FROM mailgres.schema_objects o WHERE NOT EXISTS (SELECT FROM found f WHERE f.object = o.object)
)
INSERT INTO mailgres.schema_objects AS o (object, source, definition, fingerprint)
SELECT f.object, f.source, mailgres.definition_of(f.kind, f.id, f.fingerprint), f.fingerprint
FROM found f
WHERE NOT EXISTS (SELECT FROM mailgres.schema_objects s
                  WHERE (s.object, s.source, s.fingerprint) = (f.object, f.source, f.fingerprint))
ON CONFLICT (object) DO UPDATE
SET (source, definition, fingerprint) = (excluded.source, excluded.definition, excluded.fingerprint)
$$;

COMMENT ON FUNCTION mailgres.record_objects(mailgres.wanted_object[]) IS
    'Records the functions, views, triggers and comments as they are now as those of mailgres.';

-- In the order of the list: functions and views, then comments and grants. Triggers are the last, because they need a
-- lock on their table, which is held until the transaction ends.
CREATE FUNCTION mailgres.replace_objects(p_wanted mailgres.wanted_object[]) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_triggers boolean;
    v_found    record;
    v_grant    text;
    v_is_gone  boolean;
    v_dropped  jsonb := '[]';
    v_changed  int := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM mailgres.compare_objects(p_wanted) c WHERE c.state <> 'same') THEN
        PERFORM mailgres.secure();  -- roles may have been created since
        RETURN 0;
    END IF;
    FOREACH v_triggers IN ARRAY ARRAY[false, true] LOOP
        FOR v_found IN
            SELECT c.* FROM mailgres.compare_objects(p_wanted) c
            WHERE c.kind <> 'comment' AND (c.kind = 'trigger') = v_triggers
            ORDER BY c.state <> 'taken', c.place NULLS FIRST
        LOOP
            IF v_found.state = 'taken' THEN
                RAISE EXCEPTION USING MESSAGE = format('%s already exists, and mailgres did not make it', v_found.object),
                    ERRCODE = CASE v_found.kind WHEN 'function' THEN 'duplicate_function' ELSE 'duplicate_table' END;
            END IF;
            v_is_gone := v_dropped @> jsonb_build_array(jsonb_build_object('object', v_found.object));
            IF v_found.state = 'obsolete' AND NOT v_is_gone THEN
                v_dropped := v_dropped || mailgres.drop_object(v_found.kind, v_found.id);
                v_changed := v_changed + 1;
            ELSIF v_found.state IN ('missing', 'outdated', 'changed') OR v_is_gone AND v_found.state <> 'obsolete' THEN
                v_dropped := v_dropped || mailgres.make_object(
                    v_found.kind, CASE WHEN NOT v_is_gone THEN v_found.id END, p_wanted[v_found.place].statement);
                v_changed := v_changed + 1;
            END IF;
        END LOOP;
        EXIT WHEN v_triggers;

        FOR v_found IN
            SELECT c.* FROM mailgres.compare_objects(p_wanted) c WHERE c.kind = 'comment' AND c.state NOT IN ('same', 'moved')
        LOOP
            EXECUTE coalesce(p_wanted[v_found.place].statement, format('COMMENT ON %s IS NULL', substr(v_found.object, 9)));
            v_changed := v_changed + 1;
        END LOOP;

        PERFORM mailgres.secure();
        FOR v_grant IN
            SELECT DISTINCT format(g.statement, substr(f.object, strpos(f.object, ' ') + 1))
            FROM jsonb_array_elements(v_dropped) d
            CROSS JOIN LATERAL jsonb_array_elements_text(d -> 'grants') g(statement)
            JOIN mailgres.find_objects(p_wanted) f
                ON f.kind IN ('function', 'view') AND split_part(f.object, '(', 1) = split_part(d ->> 'object', '(', 1) AND f.place IS NOT NULL
        LOOP
            EXECUTE v_grant;
        END LOOP;
    END LOOP;
    PERFORM mailgres.record_objects(p_wanted);
    RETURN v_changed;
END
$$;

COMMENT ON FUNCTION mailgres.replace_objects(mailgres.wanted_object[]) IS
    'Makes the functions, views, triggers and comments as they are wanted; touches none that is. Returns how many it changed.';

-- The versions that this database had; a downgrade returns to one of them.
CREATE FUNCTION mailgres.record_release(
    p_version text, p_works_since text, p_digest text, p_wanted mailgres.wanted_object[]
) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_revision constant text := (SELECT v.version_num FROM mailgres.schema_version v);
BEGIN
    IF EXISTS (SELECT FROM mailgres.schema_releases r
               WHERE r.is_current AND (r.version, r.revision, r.works_since, r.digest)
                   = (p_version, v_revision, p_works_since, p_digest)) THEN
        RETURN;
    END IF;
    UPDATE mailgres.schema_releases r SET is_current = false WHERE r.is_current;
    INSERT INTO mailgres.schema_releases AS r (version, revision, works_since, digest, objects)
    VALUES (p_version, v_revision, p_works_since, p_digest, p_wanted)
    ON CONFLICT (version, revision) DO UPDATE
    SET (works_since, digest, migrated_at, is_current, objects)
        = (excluded.works_since, excluded.digest, excluded.migrated_at, true, excluded.objects);
    DELETE FROM mailgres.schema_releases r
    WHERE (r.version, r.revision) NOT IN (
        SELECT x.version, x.revision FROM mailgres.schema_releases x ORDER BY x.migrated_at DESC LIMIT 5);
END
$$;

COMMENT ON FUNCTION mailgres.record_release(text, text, text, mailgres.wanted_object[]) IS
    'Records which version of mailgres migrated last, and which workers work with it.';
