-- The queries of `mailgres doctor`. They change nothing, and the number of rows that they read is
-- bounded, so that a long queue costs no more than a short one.

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
-- Where the default was set (database, role or both), and whether the user may reset it.
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
-- Functions that a role may call and the user may not; without that role, the functions of a claim.
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
-- Our tables and domains and what belongs to them, with definitions. With this search_path all names
-- are qualified.
WITH ours AS (
    SELECT c.oid, c.relkind, n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p')
      AND (n.nspname = 'mailgres' AND c.relname <> 'schema_version'
           OR n.nspname = 'public' AND c.relname = ANY (%(relations)s))
)
SELECT 'table ' || o.name AS object, o.relkind::text AS definition FROM ours o
UNION ALL
SELECT 'column ' || o.name || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
                 CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::regcollation::text END,
                 pg_get_expr(d.adbin, d.adrelid))
FROM ours o
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE o.relkind = 'r'
UNION ALL
SELECT 'constraint ' || coalesce(o.name, n.nspname || '.' || t.typname) || '.' || c.conname,
       pg_get_constraintdef(c.oid)
FROM pg_constraint c
LEFT JOIN ours o ON o.oid = c.conrelid
LEFT JOIN pg_type t ON t.oid = c.contypid
LEFT JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE c.contype IN ('c', 'f', 'p', 'u', 'x') AND (o.oid IS NOT NULL OR n.nspname = 'mailgres')
UNION ALL
SELECT 'index ' || n.nspname || '.' || c.relname, pg_get_indexdef(i.indexrelid)
FROM pg_index i
JOIN ours o ON o.oid = i.indrelid
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conindid = i.indexrelid AND x.conrelid = i.indrelid)
UNION ALL
SELECT 'domain ' || n.nspname || '.' || t.typname,
       concat_ws(' ', format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault)
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = 'mailgres' AND t.typtype = 'd'

-- repeatable_objects --
-- All functions, views, triggers and comments of mailgres, with their state.
SELECT c.object, c.state
FROM (SELECT array_agg(ROW(u.kind, u.name, u.statement)::mailgres.wanted_object ORDER BY u.place) AS wanted
      FROM unnest(%(kinds)s::text[], %(names)s::text[], %(statements)s::text[])
          WITH ORDINALITY u(kind, name, statement, place)) w
CROSS JOIN LATERAL mailgres.compare_objects(w.wanted) c
ORDER BY c.place NULLS FIRST, c.object

-- names --
-- The functions and views in our schema, the functions of our names in public, the triggers of our tables.
SELECT 'function ' || p.oid::regprocedure::text AS object
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'mailgres' OR n.nspname = 'public' AND p.proname = ANY (%(functions)s)
UNION ALL
SELECT 'view ' || c.oid::regclass::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND n.nspname = 'mailgres'
UNION ALL
SELECT 'trigger ' || c.oid::regclass::text || '.' || t.tgname
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal
  AND (n.nspname = 'mailgres' OR n.nspname = 'public' AND c.relname = ANY (%(relations)s))

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
-- A restrictive policy admits nobody: it restricts what other policies permit.
SELECT quote_ident(p.policyname) AS policy, format('%%I.%%I', p.schemaname, p.tablename) AS "table",
       array_to_string(p.roles, ', ') AS who
FROM pg_policies p
WHERE p.schemaname = 'public' AND p.tablename = ANY (%(relations)s) AND p.permissive = 'PERMISSIVE'
  AND p.roles && (ARRAY['public'] || %(strangers)s::text[])::name[]
ORDER BY 2, 1

-- unintended_grants --
-- One row for all objects on which a role has the same rights. It is usual to grant the functions of
-- the contract and the views without personal data; other grants are a warning.
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
-- By row security, pg_cron shows a user only the user's own jobs.
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
-- An email can be claimed if neither its tenant nor its route is paused, and a provider is usable.
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
-- Rows of a published table without a replica identity can be neither updated nor deleted.
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
              AND (SELECT h.server_since FROM mailgres.home h) + (q.lease_until - q.leased_at) + interval '5 minutes' < mailgres.now()
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
-- Routes with ready emails that cannot be claimed; and a provider that really sends, preferably one
-- that is usable.
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
-- The senders that recent workers report, and the kinds of the routes' providers that really send.
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

-- quarantine --
SELECT quarantined, because FROM mailgres.quarantine_state()

-- reported_emails --
-- Of the newest emails, those that were sent at least an hour ago: an event may take its time.
SELECT q.provider, p.kind, p.kind = 'capture' AS captures, count(*) AS sent, count(d.queue_id) AS reported
FROM (SELECT q.id, q.provider, q.status, q.sent_at FROM public.email_queue q
      ORDER BY q.id DESC LIMIT 10000) q
JOIN mailgres.providers p ON p.name = q.provider
LEFT JOIN mailgres.deliveries d ON d.queue_id = q.id
WHERE q.status = 'sent'
  AND q.sent_at BETWEEN mailgres.now() - interval '2 days' AND mailgres.now() - interval '1 hour'
GROUP BY q.provider, p.kind
ORDER BY q.provider
