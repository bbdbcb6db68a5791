-- The queries of a move and of an undo; what they create is in move.sql.

-- limits --
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('lock_timeout', '2s', true), pg_catalog.set_config('statement_timeout', '60s', true),
       pg_catalog.set_config('quote_all_identifiers', 'off', true)

-- rights --
-- Whether this user may do it: as owner of the old table and of our queue.
SELECT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass(%(table)s)) AS old,
       (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('public.email_queue')) AS ours,
       (SELECT c.relkind = 'r' FROM pg_class c WHERE c.oid = to_regclass(%(table)s)) AS plain,
       (SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'mailgres_adopted') AS schema,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'mailgres_adopted') AND NOT EXISTS (
           SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = 'mailgres_adopted' AND c.relname = 'adopted_queues') AS foreign_schema

-- has_state --
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'mailgres_adopted' AND c.relname = 'adopted_queues') AS found

-- queues --
SELECT a.number, a.schema_name, a.table_name, a.state, a.jobs,
       (SELECT max(s.done_at) FROM mailgres_adopted.adopted_steps s WHERE s.number = a.number) AS since
FROM mailgres_adopted.adopted_queues a ORDER BY a.number

-- begin --
INSERT INTO mailgres_adopted.adopted_queues (schema_name, table_name, hold, oldest, jobs)
VALUES (%(schema)s, %(table)s, make_interval(mins => %(hold)s), now() - make_interval(days => %(old_after)s), %(jobs)s)
RETURNING number

-- done --
INSERT INTO mailgres_adopted.adopted_steps (number, step) VALUES (%(number)s, %(step)s) ON CONFLICT DO NOTHING

-- defaults --
SELECT a.attname AS name, pg_get_expr(d.adbin, d.adrelid) AS expression
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = %(base)s::regclass AND a.attgenerated = ''

-- grantees --
-- The roles that had rights on the old table, with those that the view can have. Row security binds writers only where the view
-- passes their changes on, so such roles may only read.
SELECT DISTINCT r.rolname::text AS role, a.privilege_type AS privilege
FROM pg_class c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = %(base)s::regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  AND r.rolname <> ALL (%(closed)s)
  AND (NOT c.relrowsecurity OR a.privilege_type = 'SELECT' OR r.rolsuper OR r.rolbypassrls OR r.oid = c.relowner)

-- lost_rights --
-- The roles that have rights on the old table that the view will not give, unless no policy lets the role use them.
SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role,
       string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type) AS lost, c.relrowsecurity AS bound
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = %(table)s::regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  AND (a.grantee = 0 OR r.rolname = ANY (%(closed)s)
       OR c.relrowsecurity AND a.privilege_type <> 'SELECT' AND NOT (r.rolsuper OR r.rolbypassrls OR r.oid = c.relowner))
  AND (NOT c.relrowsecurity OR EXISTS (
      SELECT FROM pg_policy p
      WHERE p.polrelid = c.oid AND p.polpermissive AND (0 = ANY (p.polroles) OR a.grantee = ANY (p.polroles))
        AND p.polcmd IN ('*', CASE a.privilege_type WHEN 'SELECT' THEN 'r' WHEN 'INSERT' THEN 'a'
                                                    WHEN 'UPDATE' THEN 'w' ELSE 'd' END)))
GROUP BY a.grantee, c.relrowsecurity ORDER BY 1

-- grant --
GRANT {privilege} ON {view} TO {role}

-- grant_state --
GRANT EXECUTE ON FUNCTION mailgres_adopted.state_of(int, text) TO {role}

-- has_alter_job --
SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
               WHERE n.nspname = 'cron' AND p.proname = 'alter_job') AS found

-- alter_job --
SELECT cron.alter_job(job_id => %(job)s, active => %(active)s)

-- update_job --
UPDATE cron.job SET active = %(active)s WHERE jobid = %(job)s

-- import --
SELECT {import_}(%(limit)s) AS rows

-- give_back --
SELECT {give_back}(%(limit)s) AS rows

-- counts --
SELECT r.kind, count(DISTINCT r.old_id) AS rows, count(r.email_id) AS emails, count(*) FILTER (WHERE r.too_late) AS late
FROM mailgres_adopted.adopted_rows r WHERE r.number = %(number)s GROUP BY r.kind

-- left --
SELECT r.old_id AS id, r.why FROM mailgres_adopted.adopted_rows r
WHERE r.number = %(number)s AND r.kind = 'unmappable' ORDER BY r.why, length(r.old_id), r.old_id LIMIT %(limit)s

-- start_undo --
UPDATE mailgres_adopted.adopted_queues SET state = 'undoing' WHERE number = %(number)s

-- remaining --
SELECT count(DISTINCT r.old_id) AS rows FROM mailgres_adopted.adopted_rows r WHERE r.number = %(number)s

-- lock --
LOCK TABLE {base} IN ACCESS EXCLUSIVE MODE

-- end_undo --
DELETE FROM mailgres_adopted.adopted_queues WHERE number = %(number)s

-- drop_state --
DROP TABLE mailgres_adopted.adopted_steps, mailgres_adopted.adopted_rows, mailgres_adopted.adopted_queues;
DROP FUNCTION mailgres_adopted.state_of(int, text), mailgres_adopted.settle(int, text, text, text),
    mailgres_adopted.close_to_others(text, text, oid, aclitem[]);
DROP SCHEMA mailgres_adopted

-- trial --
SELECT {kind_of}(NULL) AS kind
