-- CREATE OR REPLACE cannot change the columns of a view, nor the names or the result of a function. Such an
-- object is dropped first, together with what is built on it, if all of that is ours.

CREATE FUNCTION mailgres.dependents_of(p_kind text, p_id oid)
    RETURNS TABLE (kind text, id oid, object text, depth int)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH RECURSIVE going(class, id, depth) AS (
    SELECT CASE p_kind WHEN 'function' THEN 'pg_proc' WHEN 'trigger' THEN 'pg_trigger' ELSE 'pg_class' END::regclass::oid, p_id, 0
    UNION
    SELECT CASE WHEN w.oid IS NOT NULL THEN 'pg_class'::regclass ELSE d.classid END, coalesce(w.ev_class, d.objid), g.depth + 1
    FROM going g
    LEFT JOIN pg_type t ON g.class = 'pg_class'::regclass AND t.typrelid = g.id
    JOIN pg_depend d
        ON d.deptype IN ('n', 'a')
       AND (d.refclassid = g.class AND d.refobjid = g.id
            OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray))
    LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
    WHERE g.depth < 100 AND coalesce(w.ev_class, d.objid) <> g.id
), deepest AS (
    SELECT g.class, g.id, max(g.depth) AS depth FROM going g GROUP BY g.class, g.id
)
SELECT x.kind, d.id, coalesce(x.kind || ' ' || x.name, pg_describe_object(d.class, d.id, 0)), d.depth
FROM deepest d
CROSS JOIN LATERAL (
    SELECT CASE d.class WHEN 'pg_proc'::regclass THEN 'function' WHEN 'pg_trigger'::regclass THEN 'trigger'
                        WHEN 'pg_class'::regclass THEN 'view' END AS kind,
           CASE d.class
               WHEN 'pg_proc'::regclass THEN d.id::regprocedure::text
               WHEN 'pg_class'::regclass THEN d.id::regclass::text
               WHEN 'pg_trigger'::regclass THEN (
                   SELECT t.tgrelid::regclass::text || '.' || t.tgname FROM pg_trigger t WHERE t.oid = d.id) END AS name) x
$$;

COMMENT ON FUNCTION mailgres.dependents_of(text, oid) IS
    'A function, view or trigger and all that is built on it; what has to be dropped first has the largest depth.';

-- As statements for whatever object of ours has the same name afterwards.
CREATE FUNCTION mailgres.grants_on(p_kind text, p_id oid) RETURNS TABLE (statement text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT
       format('GRANT %s%s ON %s %%s TO %s%s', x.privilege_type, ' (' || replace(quote_ident(x.column_name), '%', '%%') || ')',
              CASE p_kind WHEN 'function' THEN 'ROUTINE' ELSE 'TABLE' END, replace(quote_ident(g.rolname), '%', '%%'),
              CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' END)
FROM (
    SELECT NULL AS column_name, p.proowner AS owner, a.*
    FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a WHERE p_kind = 'function' AND p.oid = p_id
    UNION ALL
    SELECT NULL, c.relowner, a.*
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE p_kind = 'view' AND c.oid = p_id
    UNION ALL
    SELECT b.attname, c.relowner, a.*
    FROM pg_class c JOIN pg_attribute b ON b.attrelid = c.oid CROSS JOIN LATERAL aclexplode(b.attacl) a
    WHERE p_kind = 'view' AND c.oid = p_id
) x
JOIN pg_roles g ON g.oid = x.grantee
WHERE x.grantee <> x.owner AND g.rolname NOT IN ('anon', 'authenticated')
$$;

COMMENT ON FUNCTION mailgres.grants_on(text, oid) IS
    'The explicit grants on a function or view, as statements with a place for its name.';

CREATE FUNCTION mailgres.drop_object(p_kind text, p_id oid) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_going    record;
    v_others   text;
    v_dropped  jsonb := '[]';
BEGIN
    SELECT string_agg(x.object, ', ' ORDER BY x.object) INTO v_others
    FROM (
        SELECT d.object FROM mailgres.dependents_of(p_kind, p_id) d
        WHERE NOT EXISTS (SELECT FROM mailgres.schema_objects o WHERE o.object = d.object) AND d.depth > 0
        UNION ALL
        SELECT format('rule %s on %s', w.rulename, d.object)
        FROM mailgres.dependents_of(p_kind, p_id) d JOIN pg_rewrite w ON w.ev_class = d.id
        WHERE d.kind = 'view' AND w.rulename <> '_RETURN'
    ) x;
    IF v_others IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
            MESSAGE = format('%s has to be dropped, and %s depends on it', (
                SELECT d.object FROM mailgres.dependents_of(p_kind, p_id) d WHERE d.depth = 0), v_others),
            HINT = 'Nothing was changed. Save the definition of your object, drop it, run `mailgres migrate` again, and create it again.';
    END IF;
    FOR v_going IN SELECT d.* FROM mailgres.dependents_of(p_kind, p_id) d ORDER BY d.depth DESC, d.object LOOP
        v_dropped := v_dropped || jsonb_build_object('object', v_going.object, 'grants', (
            SELECT coalesce(jsonb_agg(g.statement), '[]') FROM mailgres.grants_on(v_going.kind, v_going.id) g));
        IF v_going.kind = 'trigger' THEN
            EXECUTE (SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger t WHERE t.oid = v_going.id);
        ELSE
            EXECUTE format('DROP %s %s', CASE v_going.kind WHEN 'view' THEN 'VIEW' ELSE 'ROUTINE' END,
                           substr(v_going.object, strpos(v_going.object, ' ') + 1));
        END IF;
    END LOOP;
    RETURN v_dropped;
END
$$;

COMMENT ON FUNCTION mailgres.drop_object(text, oid) IS
    'Drops an object of mailgres and what is built on it, and returns what it dropped; refused if one of these is not of mailgres.';
