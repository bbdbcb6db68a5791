-- Versions of PostgreSQL write a query with other brackets and qualifiers. A query that was dumped and
-- restored has a name where it had none before: that of the type of a cast.
CREATE FUNCTION mailgres.normalize_query(p_query text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_name text[];
BEGIN
    FOREACH v_name SLICE 1 IN ARRAY ARRAY[
        ['timestamp with time zone', 'timestamptz'], ['timestamp without time zone', 'timestamp'],
        ['double precision', 'float8'], ['character varying', 'varchar'], ['boolean', 'bool'],
        ['smallint', 'int2'], ['integer', 'int4'], ['bigint', 'int8']]
    LOOP
        p_query := regexp_replace(p_query, format(E'(::%s(?:\\[\\])*) AS %s\\M', v_name[1], v_name[2]), E'\\1', 'g');
    END LOOP;
    p_query := regexp_replace(p_query, E'(::(?:\\w+[.])?(\\w+)(?:\\[\\])*) AS \\2\\M', E'\\1', 'g');
    RETURN regexp_replace(regexp_replace(p_query, E'\\m\\w+[.](?=\\w)', '', 'g'), E'[\\s()]+', '', 'g');
END
$$;

COMMENT ON FUNCTION mailgres.normalize_query(text) IS 'A query in the form in which definitions are compared.';

CREATE FUNCTION mailgres.definition_of(p_kind text, p_id oid, p_fingerprint text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE p_kind
        WHEN 'function' THEN (
            SELECT md5(concat_ws(' ', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
                                 p.prosecdef, p.provolatile, p.proisstrict, p.proparallel, p.proconfig::text,
                                 coalesce(mailgres.normalize_query(pg_get_function_sqlbody(p.oid)), p.prosrc)))
            FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid = p_id)
        WHEN 'view' THEN (
            SELECT md5(concat_ws(' ', c.reloptions::text, mailgres.normalize_query(pg_get_viewdef(c.oid)),
                                 (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ',' ORDER BY a.attnum)
                                  FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)))
            FROM pg_class c WHERE c.oid = p_id)
        WHEN 'trigger' THEN (
            SELECT md5(t.tgenabled::text || ' ' || mailgres.normalize_query(pg_get_triggerdef(t.oid)))
            FROM pg_trigger t WHERE t.oid = p_id)
        ELSE p_fingerprint END;
END
$$;

COMMENT ON FUNCTION mailgres.definition_of(text, oid, text) IS
    'A hash of an object''s definition, the same in every version of PostgreSQL.';

-- missing; taken: an object of the application has the name; outdated: made from another statement;
-- changed: not by a migration; moved: another row of the catalog, as after a restore, with the same definition;
-- obsolete: made by an earlier version.
CREATE FUNCTION mailgres.compare_objects(p_wanted mailgres.wanted_object[])
    RETURNS TABLE (place int, kind text, object text, id oid, state text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
    -- what the definitions and names of the catalog look like
    SET quote_all_identifiers = off SET datestyle = ISO SET intervalstyle = postgres SET extra_float_digits = 1
AS $$
SELECT f.place, f.kind, f.object, f.id,
       CASE WHEN f.place IS NULL THEN 'obsolete'
            WHEN f.fingerprint IS NULL THEN 'missing'
            WHEN o.object IS NULL AND f.kind <> 'comment' AND f.name LIKE 'public.%' THEN 'taken'
            WHEN o.source IS DISTINCT FROM f.source THEN 'outdated'
            WHEN o.fingerprint = f.fingerprint THEN 'same'
            WHEN o.definition = mailgres.definition_of(f.kind, f.id, f.fingerprint) THEN 'moved'
            ELSE 'changed' END
FROM mailgres.find_objects(p_wanted) f
LEFT JOIN mailgres.schema_objects o ON o.object = f.object
WHERE f.place IS NOT NULL OR f.fingerprint IS NOT NULL
$$;

COMMENT ON FUNCTION mailgres.compare_objects(mailgres.wanted_object[]) IS
    'What is missing, outdated, changed or obsolete among the functions, views, triggers and comments of mailgres.';
