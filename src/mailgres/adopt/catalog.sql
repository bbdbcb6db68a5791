-- The queries of an inspection: what the catalog says about tables that are not ours. They change nothing.

-- limits --
SELECT pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', '20s', true), pg_catalog.set_config('lock_timeout', '2s', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('quote_all_identifiers', 'off', true), pg_catalog.set_config('datestyle', 'ISO', true),
       pg_catalog.set_config('row_security', 'on', true)

-- server --
-- The zone is the database's, not that of this session: a client may set its own. to_regclass would fail for a
-- schema that the user may not use.
SELECT coalesce((SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'), 'UTC') AS timezone,
       coalesce('mailgres.schema_version' = ANY (r.names), false) AS installed,
       coalesce('cron.job' = ANY (r.names), false) AS cron,
       coalesce('pgmq.meta' = ANY (r.names), false) AS pgmq
FROM (SELECT array_agg(n.nspname || '.' || c.relname) AS names
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE (n.nspname, c.relname) IN (('mailgres', 'schema_version'), ('cron', 'job'), ('pgmq', 'meta'))) r

-- tables --
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name, c.oid::regclass::text AS full_name,
       c.relrowsecurity AS row_security, c.reltuples::int8 AS estimate,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AS readable,
       row_security_active(c.oid) AS filtered,
       ARRAY(SELECT p.pubname::text FROM pg_publication p
             WHERE p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r
                                             WHERE r.prpubid = p.oid AND r.prrelid = c.oid)) AS publications,
       ARRAY(SELECT DISTINCT v.oid::regclass::text FROM pg_depend d
             JOIN pg_rewrite w ON w.oid = d.objid JOIN pg_class v ON v.oid = w.ev_class
             WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
               AND d.refobjid = c.oid AND v.oid <> c.oid) AS views
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> ALL (%(excluded)s)
  AND NOT (n.nspname = 'public' AND %(installed)s AND c.relname = ANY (%(ours)s))
ORDER BY n.nspname, c.relname

-- columns --
WITH RECURSIVE base AS (
    SELECT t.oid, t.oid AS base FROM pg_type t WHERE t.typtype <> 'd'
    UNION ALL
    SELECT t.oid, b.base FROM pg_type t JOIN base b ON b.oid = t.typbasetype WHERE t.typtype = 'd'
)
SELECT a.attrelid::int8 AS oid, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       t.typname AS base, t.typtype = 'e' AS enum, t.typcategory = 'A' AS array,
       a.attnotnull AS not_null, a.attidentity <> '' OR a.attgenerated <> '' AS generated,
       pg_get_expr(d.adbin, d.adrelid) AS "default",
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels
FROM pg_attribute a
JOIN base b ON b.oid = a.atttypid JOIN pg_type t ON t.oid = b.base
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY (%(tables)s::int8[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum

-- constraints --
-- Those of the tables, and foreign keys of others onto them.
SELECT c.conrelid::int8 AS oid, c.conrelid::regclass::text AS "table", c.contype::text AS kind, c.conname AS name,
       pg_get_constraintdef(c.oid) AS definition, c.confrelid::int8 AS target_oid,
       CASE WHEN c.contype = 'f' THEN c.confrelid::regclass::text END AS target,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(n, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.n ORDER BY k.place) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(n, place)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.n ORDER BY k.place) AS target_columns
FROM pg_constraint c
WHERE c.contype IN ('p', 'u', 'c', 'f')
  AND (c.conrelid = ANY (%(tables)s::int8[]::oid[]) OR c.confrelid = ANY (%(tables)s::int8[]::oid[]))
ORDER BY c.conrelid, c.conname

-- indexes --
SELECT i.indrelid::int8 AS oid, pg_get_indexdef(i.indexrelid) AS definition
FROM pg_index i WHERE i.indrelid = ANY (%(tables)s::int8[]::oid[]) ORDER BY i.indrelid, i.indexrelid::regclass::text

-- triggers --
SELECT t.tgrelid::int8 AS oid, t.tgrelid::regclass::text AS "table", t.tgname AS name, t.tgfoid::int8 AS function,
       pg_get_triggerdef(t.oid) AS definition, t.tgenabled <> 'D' AS enabled
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal AND n.nspname !~ '^pg_' AND n.nspname <> ALL (%(excluded)s)
ORDER BY t.tgrelid::regclass::text, t.tgname

-- functions --
SELECT p.oid::int8 AS oid, n.nspname AS schema, p.proname AS name,
       pg_get_function_identity_arguments(p.oid) AS arguments, oidvectortypes(p.proargtypes) AS types,
       p.prosecdef AS definer, coalesce(p.proconfig, '{}') AS config, p.provolatile::text AS volatility,
       p.prorettype = 'trigger'::regtype AS for_trigger,
       coalesce(nullif(p.prosrc, ''), pg_get_functiondef(p.oid)) AS source,
       ARRAY(SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
             FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
             WHERE a.privilege_type = 'EXECUTE'
               AND (a.grantee = 0 OR a.grantee::regrole::text IN ('anon', 'authenticated'))
             ORDER BY 1) AS executors
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
WHERE p.prokind IN ('f', 'p') AND l.lanname NOT IN ('c', 'internal')
  AND n.nspname !~ '^pg_' AND n.nspname <> ALL (%(excluded)s)
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
ORDER BY n.nspname, p.proname, p.oid

-- policies --
SELECT p.polrelid::int8 AS oid, p.polname AS name, p.polpermissive AS permissive,
       CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE'
                     WHEN 'd' THEN 'DELETE' ELSE 'ALL' END AS command,
       ARRAY(SELECT CASE r WHEN 0 THEN 'PUBLIC' ELSE r::regrole::text END FROM unnest(p.polroles) r) AS roles,
       pg_get_expr(p.polqual, p.polrelid) AS using, pg_get_expr(p.polwithcheck, p.polrelid) AS checked
FROM pg_policy p WHERE p.polrelid = ANY (%(tables)s::int8[]::oid[]) ORDER BY p.polrelid, p.polname

-- grants --
SELECT c.oid::int8 AS oid, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role,
       array_agg(a.privilege_type ORDER BY a.privilege_type) AS privileges
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = ANY (%(tables)s::int8[]::oid[])
  AND (a.grantee = 0 OR a.grantee::regrole::text IN ('anon', 'authenticated'))
GROUP BY c.oid, a.grantee ORDER BY c.oid, role

-- jobs --
SELECT jobid::int8 AS id, jobname::text AS name, schedule, command, active FROM cron.job ORDER BY jobid

-- pgmq --
SELECT queue_name::text AS name FROM pgmq.meta ORDER BY queue_name

-- statuses --
-- The values of a column that has few of them, with their numbers.
SELECT value, count(*) AS rows
FROM (SELECT {column}::text AS value FROM {table} t LIMIT 2000000) v
GROUP BY value ORDER BY count(*) DESC, value LIMIT 41

-- sample --
SELECT to_jsonb(t) AS row FROM (SELECT * FROM {table} LIMIT 1000) t
