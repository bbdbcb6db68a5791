-- jit = off everywhere here: PostgreSQL overestimates these lists, and would compile for seconds.

-- The rights in the catalog: on everything in the schema mailgres; in public on the objects that
-- intended_grants() names, and on the sequences of those tables.

CREATE FUNCTION mailgres.rights()
    RETURNS TABLE (kind text, object text, column_name text, oid oid, owner oid,
                   grantee oid, grantor oid, privilege text, grantable boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH named AS MATERIALIZED (
    SELECT DISTINCT CASE WHEN g.kind <> 'function' THEN to_regclass(g.object) END AS relation,
                    CASE WHEN g.kind = 'function' THEN to_regprocedure(g.object) END AS routine
    FROM mailgres.intended_grants() g
    WHERE starts_with(g.object, 'public.')
), relations AS MATERIALIZED (
    SELECT c.* FROM pg_class c
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
      AND (c.relnamespace = 'mailgres'::regnamespace
           OR c.oid IN (SELECT n.relation FROM named n)
           OR c.relkind = 'S' AND EXISTS (
               SELECT FROM pg_depend d JOIN named n ON n.relation = d.refobjid
               WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                 AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')))
), objects(kind, object, column_name, oid, owner, acl) AS (
    SELECT 'schema', n.nspname::text, NULL::text, n.oid, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
    FROM pg_namespace n WHERE n.nspname = 'mailgres'
    UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.oid::regclass::text, NULL, c.oid, c.relowner,
           coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, c.relowner))
    FROM relations c
    UNION ALL
    SELECT 'column', c.oid::regclass::text, a.attname, c.oid, c.relowner, a.attacl
    FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, NULL, p.oid, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
    FROM pg_proc p
    WHERE p.pronamespace = 'mailgres'::regnamespace OR p.oid IN (SELECT n.routine FROM named n)
    UNION ALL
    -- not the types of rows and arrays, which have no rights of their own; a domain over an array has
    SELECT 'type', t.oid::regtype::text, NULL, t.oid, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
    FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE t.typnamespace = 'mailgres'::regnamespace AND (t.typcategory <> 'A' OR t.typtype = 'd') AND (c.relkind IS NULL OR c.relkind = 'c')
)
SELECT o.kind, o.object, o.column_name, o.oid, o.owner, a.grantee, a.grantor, a.privilege_type, a.is_grantable
FROM objects o CROSS JOIN LATERAL aclexplode(o.acl) a
$$;

COMMENT ON FUNCTION mailgres.rights() IS 'Every right on an object of mailgres, the owner''s included.';

-- intended_grants() for the existing roles and objects, in the form of rights().

CREATE FUNCTION mailgres.intended_rights()
    RETURNS TABLE (kind text, object text, column_name text, oid oid, grantee oid, privilege text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH granted AS MATERIALIZED (
    SELECT g.kind, g.object, g.column_name, r.oid AS grantee, g.privilege
    FROM mailgres.intended_grants() g JOIN pg_roles r ON r.rolname = g.grantee
), named AS MATERIALIZED (  -- each name is looked up once
    SELECT x.kind, x.object,
           CASE x.kind WHEN 'schema' THEN to_regnamespace(x.object)::oid
                       WHEN 'function' THEN CASE WHEN strpos(x.object, '(') > 0 THEN to_regprocedure(x.object)::oid
                                                 ELSE to_regproc(x.object)::oid END
                       ELSE to_regclass(x.object)::oid END AS oid
    FROM (SELECT DISTINCT g.kind, g.object FROM granted g WHERE g.object <> 'mailgres.*') x
    UNION ALL
    SELECT 'table', 'mailgres.*', c.oid
    FROM pg_class c WHERE c.relnamespace = 'mailgres'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
)
SELECT DISTINCT g.kind,
       CASE g.kind WHEN 'schema' THEN n.oid::regnamespace::text WHEN 'function' THEN n.oid::regprocedure::text
                   ELSE n.oid::regclass::text END,
       a.attname::text, n.oid, g.grantee, g.privilege
FROM granted g
JOIN named n ON n.kind = g.kind AND n.object = g.object AND n.oid IS NOT NULL
LEFT JOIN pg_attribute a
    ON g.kind = 'column' AND a.attrelid = n.oid AND a.attname = g.column_name AND NOT a.attisdropped
WHERE g.kind <> 'column' OR a.attname IS NOT NULL
$$;

COMMENT ON FUNCTION mailgres.intended_rights() IS
    'intended_grants() for the roles and objects that exist.';

CREATE FUNCTION mailgres.unintended_grants()
    RETURNS TABLE (grantee text, everybody boolean, kind text, object text, column_name text, oid oid,
                   privileges text, passes_on boolean, revoke text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT g.grantee, g.everybody, g.kind, g.object, g.column_name, g.oid, g.privileges, g.passes_on,
       -- A right that a role passed on is revoked together with its right to pass it on.
       format('REVOKE %s%s ON %s %s FROM %s CASCADE',
              CASE WHEN g.intended OR NOT g.by_owner THEN 'GRANT OPTION FOR ' END,
              CASE WHEN g.column_name IS NULL THEN g.privileges
                   ELSE regexp_replace(g.privileges, E'\\w+', format(E'\\& (%I)', g.column_name), 'g') END,
              CASE g.kind WHEN 'column' THEN 'TABLE' WHEN 'function' THEN 'ROUTINE' ELSE upper(g.kind) END,
              g.object, CASE WHEN g.by_owner THEN g.grantee ELSE g.grantor END)
FROM (
    SELECT coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee, quote_ident(o.rolname) AS grantor,
           coalesce(r.rolname IN ('anon', 'authenticated'), true) AS everybody,
           x.kind, x.object, x.column_name, x.oid, x.grantor = x.owner AS by_owner, i.oid IS NOT NULL AS intended,
           string_agg(x.privilege, ', ' ORDER BY x.privilege) AS privileges, bool_or(x.grantable) AS passes_on
    FROM mailgres.rights() x
    LEFT JOIN pg_roles r ON r.oid = x.grantee
    LEFT JOIN pg_roles o ON o.oid = x.grantor
    LEFT JOIN mailgres.intended_rights() i
        ON (i.kind, i.oid, i.grantee, i.privilege) = (x.kind, x.oid, x.grantee, x.privilege)
       AND i.column_name IS NOT DISTINCT FROM x.column_name
    WHERE x.grantee <> x.owner AND (i.oid IS NULL OR x.grantable)
    GROUP BY r.rolname, o.rolname, x.kind, x.object, x.column_name, x.oid, x.grantor, x.owner, i.oid IS NOT NULL
) g
$$;

COMMENT ON FUNCTION mailgres.unintended_grants() IS
    'Rights on objects of mailgres beyond intended_grants(), and the statement that revokes each; everybody: PUBLIC, anon, authenticated.';
