-- What `mailgres doctor` asks. Everything is read, nothing is changed, and the rows that are looked at
-- are bounded, so that a long queue costs no more than a short one.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', '5s', true), pg_catalog.set_config('lock_timeout', '2s', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('quote_all_identifiers', 'off', true), pg_catalog.set_config('datestyle', 'ISO', true),
       pg_catalog.set_config('intervalstyle', 'postgres', true), pg_catalog.set_config('extra_float_digits', '1', true),
       pg_catalog.set_config('timezone', 'UTC', true), pg_catalog.set_config('row_security', 'on', true),
       pg_catalog.set_config('standard_conforming_strings', 'on', true)

-- server --
SELECT current_setting('server_version_num')::int AS number,
       'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1) AS version,
       current_user AS "user",
       EXISTS (SELECT FROM pg_roles r
               WHERE r.rolname = 'mailgres_worker' AND pg_has_role(current_user, r.oid, 'MEMBER')) AS works,
       pg_is_in_recovery() AS standby,
       current_setting('default_transaction_read_only')::boolean AS read_only

-- read_only_settings --
-- Where the default was made, of what counts for who logs in; and whether he may take it back.
SELECT CASE WHEN s.setrole = 0 AND s.setdatabase = 0 THEN 'ALTER ROLE ALL'
            WHEN s.setrole = 0 THEN format('ALTER DATABASE %%I', d.datname)
            ELSE format('ALTER ROLE %%I', r.rolname)
                 || CASE WHEN s.setdatabase = 0 THEN '' ELSE format(' IN DATABASE %%I', d.datname) END
       END || ' RESET default_transaction_read_only' AS reset,
       m.rolsuper OR s.setrole = m.oid
       OR s.setrole = 0 AND s.setdatabase <> 0 AND pg_has_role(m.oid, d.datdba, 'USAGE') AS mine
FROM pg_db_role_setting s
JOIN pg_database d ON d.datname = current_database()
JOIN pg_roles m ON m.rolname = session_user
LEFT JOIN pg_roles r ON r.oid = s.setrole
CROSS JOIN LATERAL unnest(s.setconfig) c(setting)
WHERE s.setdatabase IN (0, d.oid) AND s.setrole IN (0, m.oid)
  AND c.setting ^@ 'default_transaction_read_only=' AND split_part(c.setting, '=', 2)::boolean
ORDER BY s.setdatabase, s.setrole

-- read_only_source --
SELECT source IN ('client', 'environment variable') AS of_client
FROM pg_settings WHERE name = 'default_transaction_read_only'

-- clock --
SELECT extract(epoch FROM clock_timestamp())::float8 AS epoch,
       extract(epoch FROM mailgres.now() - now())::float8 AS travelled

-- missing_roles --
SELECT w.role
FROM unnest(ARRAY['mailgres_producer', 'mailgres_worker', 'mailgres_operator', 'mailgres_analyst']) w(role)
WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = w.role)
ORDER BY w.role

-- lacking --
-- What a role may call, or without that role what claims, and the user may not.
SELECT n.nspname || '.' || p.proname AS function
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
LEFT JOIN pg_roles r ON r.rolname = %(role)s
WHERE n.nspname = 'mailgres'
  AND CASE WHEN r.oid IS NULL THEN p.proname IN ('claim', 'start_attempts', 'finish')
           ELSE has_function_privilege(r.oid, p.oid, 'EXECUTE') END
  AND NOT (has_schema_privilege('mailgres', 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'))
ORDER BY p.proname <> 'claim', p.proname

-- objects --
-- Every object of ours and what is added to it, with its definition. With this search_path all
-- names are written out. What has another shape cannot be replaced, only dropped and made anew.
WITH ours AS (
    SELECT c.oid, c.relkind, c.relpersistence, c.reloptions, n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'v', 'p', 'm')
      AND (n.nspname = 'mailgres' AND c.relname <> 'schema_version'
           OR n.nspname = 'public' AND c.relname = ANY (%(relations)s))
)
SELECT CASE WHEN o.relkind IN ('v', 'm') THEN 'view ' ELSE 'table ' END || o.name AS object,
       CASE WHEN o.relkind IN ('v', 'm')
            THEN coalesce(o.reloptions::text, '') || pg_get_viewdef(o.oid)
            ELSE o.relkind::text END AS definition,
       'query' AS style,
       CASE WHEN o.relkind IN ('v', 'm') THEN
           (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
            FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attnum > 0) END AS shape
FROM ours o
UNION ALL
SELECT 'column ' || o.name || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
                 CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::regcollation::text END,
                 pg_get_expr(d.adbin, d.adrelid)),
       'expression', NULL
FROM ours o
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE o.relkind = 'r'
UNION ALL
SELECT 'constraint ' || coalesce(o.name, n.nspname || '.' || t.typname) || '.' || c.conname,
       pg_get_constraintdef(c.oid), 'expression', NULL
FROM pg_constraint c
LEFT JOIN ours o ON o.oid = c.conrelid
LEFT JOIN pg_type t ON t.oid = c.contypid
LEFT JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE c.contype IN ('c', 'f', 'p', 'u', 'x') AND (o.oid IS NOT NULL OR n.nspname = 'mailgres')
UNION ALL
SELECT 'index ' || n.nspname || '.' || c.relname, pg_get_indexdef(i.indexrelid), 'expression', NULL
FROM pg_index i
JOIN ours o ON o.oid = i.indrelid
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conindid = i.indexrelid AND x.conrelid = i.indrelid)
UNION ALL
SELECT 'trigger ' || o.name || '.' || t.tgname, t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid), 'expression', NULL
FROM pg_trigger t JOIN ours o ON o.oid = t.tgrelid
WHERE NOT t.tgisinternal
UNION ALL
SELECT 'domain ' || n.nspname || '.' || t.typname,
       concat_ws(' ', format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault), 'expression', NULL
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = 'mailgres' AND t.typtype = 'd'
UNION ALL
SELECT 'function ' || n.nspname || '.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')',
       concat_ws(' ', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
                 p.prosecdef, p.provolatile, p.proisstrict, p.proconfig::text,
                 coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)),
       CASE WHEN p.prosqlbody IS NOT NULL THEN 'query' ELSE 'source' END,
       concat_ws(' ', p.prokind, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid))
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
WHERE n.nspname = 'mailgres' OR n.nspname = 'public' AND p.proname = ANY (%(functions)s)

-- dependents --
-- What has to go before a view or a function of ours can go.
WITH views AS (
    SELECT c.oid, c.reltype, 'view ' || n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('v', 'm')
), routines AS (
    SELECT p.oid, 'function ' || n.nspname || '.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')' AS name
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname <> 'pg_catalog'
), things AS (
    SELECT 'pg_class'::regclass AS class, v.oid, v.name FROM views v
    UNION ALL
    SELECT 'pg_type'::regclass, t.oid, v.name FROM views v JOIN pg_type t ON v.reltype IN (t.oid, t.typelem)
    UNION ALL
    SELECT 'pg_proc'::regclass, r.oid, r.name FROM routines r
)
SELECT DISTINCT x.object, x.dependent
FROM (
    SELECT t.name AS object,
           coalesce(v.name, r.name, 'trigger ' || n.nspname || '.' || c.relname || '.' || g.tgname,
                    pg_describe_object(d.classid, d.objid, d.objsubid)) AS dependent
    FROM things t
    JOIN pg_depend d ON d.refclassid = t.class AND d.refobjid = t.oid AND d.deptype IN ('n', 'a')
    LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
    LEFT JOIN views v ON v.oid = w.ev_class
    LEFT JOIN routines r ON d.classid = 'pg_proc'::regclass AND r.oid = d.objid
    LEFT JOIN pg_trigger g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
    LEFT JOIN pg_class c ON c.oid = g.tgrelid
    LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE t.name = ANY (%(names)s)
       OR t.name LIKE 'view mailgres.%%' OR t.name LIKE 'function mailgres.%%') x
WHERE x.dependent <> x.object
ORDER BY x.object, x.dependent

-- unlogged --
SELECT c.oid::regclass::text AS "table"
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'u'
  AND (n.nspname = 'mailgres' OR n.nspname = 'public' AND c.relname = ANY (%(relations)s))
ORDER BY 1

-- without_row_security --
SELECT c.oid::regclass::text AS "table"
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relname = ANY (%(relations)s) AND c.relkind = 'r' AND NOT c.relrowsecurity
ORDER BY 1

-- open_policies --
-- A restrictive policy lets nobody in: it takes away from what others give.
SELECT quote_ident(p.policyname) AS policy, format('%%I.%%I', p.schemaname, p.tablename) AS "table",
       array_to_string(p.roles, ', ') AS who
FROM pg_policies p
WHERE p.schemaname = 'public' AND p.tablename = ANY (%(relations)s) AND p.permissive = 'PERMISSIVE'
  AND p.roles && (ARRAY['public'] || %(strangers)s::text[])::name[]
ORDER BY 2, 1

-- unintended_grants --
-- One row for all objects on which a role has the same rights. Calling a function of the contract and
-- reading figures are what people grant; whatever else there is deserves a second look.
SELECT u.grantee, u.everybody, u.kind, u.privileges, u.passes_on, min(u.object) AS first,
       count(DISTINCT u.object) AS objects,
       bool_and(NOT u.passes_on AND starts_with(u.object, 'public.')
                AND (u.kind = 'function' OR u.privileges = 'SELECT' AND u.object = ANY (%(figures)s))) AS usual,
       array_agg(u.revoke ORDER BY u.object, u.column_name) AS revokes
FROM mailgres.unintended_grants() u
GROUP BY u.grantee, u.everybody, u.kind, u.privileges, u.passes_on
ORDER BY NOT u.everybody, u.grantee, u.kind, u.privileges

-- strangers_among_ours --
SELECT quote_ident(s.rolname) AS who, o.rolname AS role,
       EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = o.oid AND m.member = s.oid) AS direct
FROM pg_roles s
JOIN pg_roles o ON (o.rolname ^@ 'mailgres_' OR o.rolname = 'service_role') AND pg_has_role(s.oid, o.oid, 'MEMBER')
WHERE s.rolname = ANY (%(strangers)s) AND NOT s.rolsuper
ORDER BY 1, 2

-- creators_in_public --
SELECT has_schema_privilege('public', 'public', 'CREATE') AS everybody

-- exposed_schema --
SELECT coalesce(r.rolname, 'all') AS role, split_part(c.setting, '=', 2) AS schemas
FROM pg_db_role_setting s
JOIN pg_roles r ON r.oid = s.setrole
CROSS JOIN LATERAL unnest(s.setconfig) c(setting)
WHERE c.setting ^@ 'pgrst.db_schemas='
  AND 'mailgres' = ANY (regexp_split_to_array(split_part(c.setting, '=', 2), '[[:space:]]*,[[:space:]]*'))

-- has_cron --
SELECT to_regclass('cron.job') IS NOT NULL AS jobs, to_regclass('cron.job_run_details') IS NOT NULL AS details

-- unseen_jobs --
-- pg_cron shows a user his own jobs only, by row security.
SELECT row_security_active('cron.job') AS some

-- cron_jobs --
SELECT jobid AS id, coalesce(jobname, jobid::text) AS name, command FROM cron.job ORDER BY jobid

-- failed_jobs --
SELECT j.jobname AS name, coalesce(left(split_part(d.return_message, E'\n', 1), 200), 'no message') AS message,
       format('SELECT * FROM cron.job_run_details WHERE jobid = %%s ORDER BY start_time DESC LIMIT 5', j.jobid) AS look
FROM cron.job j
CROSS JOIN LATERAL (
    SELECT x.status, x.return_message FROM cron.job_run_details x
    WHERE x.jobid = j.jobid AND x.status IN ('succeeded', 'failed')
    ORDER BY x.start_time DESC LIMIT 1) d
WHERE j.jobname LIKE 'mailgres-%%' AND j.active AND d.status = 'failed'
ORDER BY j.jobid

-- invalid_indexes --
SELECT i.indexrelid::regclass::text AS index
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT (i.indisvalid AND i.indisready)
  AND (n.nspname = 'mailgres' OR n.nspname = 'public' AND c.relname ^@ 'email_')
ORDER BY 1

-- tables --
SELECT c.oid::regclass::text AS "table", pg_stat_get_live_tuples(c.oid) AS live,
       pg_stat_get_dead_tuples(c.oid) AS dead,
       (SELECT o.option_value::boolean FROM pg_options_to_table(c.reloptions) o
        WHERE o.option_name = 'autovacuum_enabled') AS autovacuum
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (n.nspname = 'mailgres' OR n.nspname = 'public' AND c.relname ^@ 'email_')
ORDER BY 1

-- autovacuum --
SELECT NOT current_setting('autovacuum')::boolean AS off

-- index_sizes --
SELECT i.indexrelid::regclass::text AS index, pg_relation_size(i.indexrelid) AS bytes, x.reltuples AS entries
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = 'public.email_queue'::regclass
ORDER BY 1

-- old_transactions --
SELECT a.pid, coalesce(a.usename, '?') || coalesce(' (' || nullif(a.application_name, '') || ')', '') AS who,
       coalesce(a.state, '?') AS state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM pg_stat_activity a
WHERE a.xact_start < clock_timestamp() - make_interval(secs => %(old)s)
  AND a.backend_type = 'client backend' AND a.datname = current_database() AND a.pid <> pg_backend_pid()
ORDER BY a.xact_start
LIMIT 10

-- prepared_transactions --
SELECT p.gid, quote_literal(p.gid) AS quoted, p.owner,
       extract(epoch FROM clock_timestamp() - p.prepared)::float8 AS seconds
FROM pg_prepared_xacts p
WHERE p.database = current_database() AND p.prepared < clock_timestamp() - make_interval(secs => %(old)s)
ORDER BY p.prepared
LIMIT 10

-- idle_slots --
SELECT s.slot_name AS slot, quote_literal(s.slot_name) AS quoted
FROM pg_replication_slots s
WHERE NOT s.active AND NOT s.temporary
ORDER BY 1

-- hidden_activity --
SELECT count(*) AS others
FROM pg_stat_activity a
WHERE a.backend_type IS NULL AND a.datname = current_database()

-- scheduler --
-- An email can be taken if neither its tenant nor its route is paused, and a provider is to be had.
WITH ways AS (
    SELECT DISTINCT rp.route
    FROM mailgres.routes r
    JOIN mailgres.route_providers rp ON rp.route = r.route
    JOIN mailgres.providers p ON p.name = rp.provider
    WHERE NOT r.paused AND p.enabled
      AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now())
      AND (p.limited_until IS NULL OR p.limited_until <= mailgres.now())
      AND (p.circuit <> 'open' OR p.circuit_until <= mailgres.now())
), late AS (
    SELECT x.next_retry_at, x.route, x.tenant_id, w.route IS NOT NULL AND t.tenant_id IS NULL AS free
    FROM (SELECT q.next_retry_at, q.route, q.tenant_id FROM public.email_queue q
          WHERE q.ready AND q.status = 'pending' LIMIT %(sample)s) x
    LEFT JOIN ways w ON w.route = x.route
    LEFT JOIN mailgres.tenants t ON t.tenant_id = x.tenant_id AND t.paused_at IS NOT NULL
    WHERE x.next_retry_at < mailgres.now() - make_interval(secs => %(late)s)
)
SELECT EXISTS (SELECT FROM mailgres.workers w
               WHERE w.seen_at > mailgres.now() - interval '1 minute' AND w.stopped_at IS NULL
                 AND NOT w.on_demand) AS alive,
       EXISTS (SELECT FROM public.email_logs l
               WHERE l.at > mailgres.now() - interval '15 minutes' AND l.worker IS NOT NULL) AS processed,
       l.emails, l.free, extract(epoch FROM mailgres.now() - l.since)::float8 AS seconds,
       o.route, o.tenant_id AS tenant
FROM (SELECT count(*) AS emails, count(*) FILTER (WHERE free) AS free,
             min(greatest(next_retry_at, 'epoch')) AS since FROM late) l
LEFT JOIN (SELECT * FROM late ORDER BY next_retry_at LIMIT 1) o ON true

-- other_versions --
SELECT w.worker, w.version
FROM mailgres.workers w
WHERE w.seen_at > mailgres.now() - interval '1 minute' AND w.stopped_at IS NULL AND w.version NOT IN ('', %(version)s)
ORDER BY w.worker
LIMIT 10

-- cluster --
SELECT current_setting('cluster_name') AS name

-- privileged_workers --
-- Workers seen lately whose role is a superuser, or the owner of the schema, or may become the owner.
SELECT w.role, min(w.worker) AS worker, count(*) AS workers, r.rolsuper AS superuser
FROM mailgres.workers w
JOIN pg_roles r ON r.rolname = w.role
JOIN pg_namespace n ON n.nspname = 'mailgres' AND (r.rolsuper OR pg_has_role(r.oid, n.nspowner, 'MEMBER'))
WHERE CASE WHEN w.on_demand THEN w.seen_at > mailgres.now() - interval '15 minutes'
           ELSE w.seen_at > mailgres.now() - interval '1 minute' AND w.stopped_at IS NULL END
GROUP BY w.role, r.rolsuper
ORDER BY w.role

-- privileged_self --
SELECT r.rolname AS role, r.rolsuper AS superuser
FROM pg_roles r
JOIN pg_namespace n ON n.nspname = 'mailgres' AND (r.rolsuper OR pg_has_role(r.oid, n.nspowner, 'MEMBER'))
WHERE r.rolname = session_user

-- exposed_workers --
SELECT w.details ->> 'connection' AS connection, min(w.worker) AS worker, count(*) AS workers
FROM mailgres.workers w
WHERE w.details ->> 'connection' = ANY (%(exposed)s)
  AND CASE WHEN w.on_demand THEN w.seen_at > mailgres.now() - interval '15 minutes'
           ELSE w.seen_at > mailgres.now() - interval '1 minute' AND w.stopped_at IS NULL END
GROUP BY w.details ->> 'connection'
ORDER BY 1

-- failing_janitors --
SELECT j.janitor, j.worker, j.failures, j.error, extract(epoch FROM mailgres.now() - j.since)::float8 AS seconds
FROM mailgres.failing_janitors() j
WHERE j.failures >= %(most)s

-- without_identity --
-- A published table without it cannot be updated, nor can rows be deleted from it.
SELECT c.oid::regclass::text AS "table",
       EXISTS (SELECT FROM pg_publication_tables p
               WHERE p.schemaname = n.nspname AND p.tablename = c.relname) AS published,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (n.nspname = 'mailgres' OR n.nspname = 'public' AND c.relname = ANY (%(relations)s))
  AND NOT CASE c.relreplident
      WHEN 'f' THEN true
      WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
      WHEN 'd' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
      ELSE false END
ORDER BY 1

-- stuck --
SELECT (SELECT count(*) FROM (
            SELECT FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at < mailgres.now() - interval '5 minutes'
              AND pg_postmaster_start_time() + (q.lease_until - q.leased_at) + interval '5 minutes' < mailgres.now()
            LIMIT %(sample)s) x) AS lost,
       (SELECT count(*) FROM (
            SELECT FROM public.email_queue q
            WHERE q.status = 'pending' AND NOT q.ready AND q.due_at < mailgres.now() - interval '5 minutes'
            LIMIT %(sample)s) x) AS unpromoted,
       (SELECT count(*) FROM (
            SELECT FROM public.email_queue q
            WHERE q.status = 'pending' AND NOT q.ready AND q.due_at > mailgres.now() + interval '1 year'
            LIMIT %(sample)s) x) AS never,
       p.emails AS parked, p.code AS parked_code
FROM (SELECT count(*) AS emails, mode() WITHIN GROUP (ORDER BY x.error_code) AS code
      FROM (SELECT q.error_code, q.parked_since FROM public.email_queue q
            WHERE q.status = 'pending' AND q.due_at < mailgres.now() + interval '1 day'
            ORDER BY q.due_at LIMIT %(sample)s) x
      WHERE x.parked_since IS NOT NULL) p

-- unreachable --
-- Routes on which emails are ready, and which cannot be claimed from; and a provider by which emails
-- really leave, at best one that is used already.
SELECT r.route, r.paused,
       (SELECT p.name FROM mailgres.providers p
        WHERE NOT p.captures
        ORDER BY p.enabled DESC,
                 (SELECT count(*) FROM mailgres.route_providers u WHERE u.provider = p.name) DESC, p.name
        LIMIT 1) AS provider
FROM mailgres.routes r
WHERE (r.paused OR NOT EXISTS (SELECT FROM mailgres.route_providers p WHERE p.route = r.route))
  AND EXISTS (SELECT FROM public.email_queue q WHERE q.ready AND q.route = r.route)
ORDER BY r.route

-- paused_tenants --
SELECT t.tenant_id AS tenant,
       format('UPDATE mailgres.tenants SET paused_at = NULL WHERE tenant_id = %%L', t.tenant_id) AS resume
FROM mailgres.tenants t
WHERE t.paused_at IS NOT NULL
  AND EXISTS (
      SELECT FROM mailgres.routes r
      CROSS JOIN LATERAL (
          SELECT FROM public.email_queue q
          WHERE q.ready AND q.route = r.route AND q.tenant_id = t.tenant_id LIMIT 1) q)
ORDER BY t.tenant_id
LIMIT 10

-- missing_providers --
SELECT m.provider, m.routes FROM mailgres.missing_providers() m

-- default_route --
SELECT rp.provider, p.captures FROM mailgres.route_providers rp JOIN mailgres.providers p ON p.name = rp.provider
WHERE rp.route = 'default' ORDER BY rp.position

-- sending --
-- What the workers seen lately say that emails come from, and the kinds of providers that really send and that routes lead to.
SELECT DISTINCT w.details ->> 'from_domain' AS domain,
       (SELECT coalesce(array_agg(DISTINCT p.kind), '{}') FROM mailgres.route_providers rp
        JOIN mailgres.providers p ON p.name = rp.provider AND NOT p.captures) AS kinds
FROM mailgres.workers w
WHERE w.details ->> 'from_domain' IS NOT NULL AND w.seen_at > mailgres.now() - interval '1 day'
ORDER BY 1

-- providers --
SELECT p.name, p.enabled, p.circuit, p.circuit_reason,
       coalesce(isfinite(p.circuit_until), false) AS ends,
       coalesce(p.paused_until > mailgres.now(), false) AS paused, p.pause_reason,
       CASE WHEN p.limited_until > mailgres.now() THEN p.limited_by END AS limited_by,
       format('UPDATE mailgres.providers SET enabled = true WHERE name = %%L', p.name) AS enable
FROM mailgres.providers p
WHERE EXISTS (SELECT FROM mailgres.route_providers rp WHERE rp.provider = p.name)
ORDER BY p.name
