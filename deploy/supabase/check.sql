-- Checks an installation on Supabase: every row has to be true.

SELECT 'anon and authenticated cannot enqueue' AS what,
       NOT EXISTS (
           SELECT FROM pg_roles r
           WHERE r.rolname IN ('anon', 'authenticated')
             AND has_function_privilege(r.oid, p.oid, 'EXECUTE')) AS holds
FROM pg_proc p WHERE p.oid = to_regproc('public.enqueue_email')
UNION ALL
SELECT 'anon and authenticated cannot read the queue',
       NOT EXISTS (
           SELECT FROM pg_roles r
           WHERE r.rolname IN ('anon', 'authenticated')
             AND has_table_privilege(r.oid, 'public.email_queue', 'SELECT, INSERT, UPDATE, DELETE'))
UNION ALL
SELECT 'anon and authenticated cannot use the schema mailgres',
       NOT EXISTS (
           SELECT FROM pg_roles r
           WHERE r.rolname IN ('anon', 'authenticated') AND has_schema_privilege(r.oid, 'mailgres', 'USAGE'))
UNION ALL
SELECT 'no job of pg_cron holds a secret',
       NOT EXISTS (
           SELECT FROM cron.job j
           WHERE j.command ~ 'eyJ[A-Za-z0-9_-]{10,}\.' OR j.command ~* 'bearer\s+[A-Za-z0-9._~+/-]{8,}')
UNION ALL
SELECT 'Vault has the address and the secret of mailgres serve',
       (SELECT count(*) = 2 FROM vault.secrets s WHERE s.name IN ('mailgres_url', 'mailgres_serve_secret'))
UNION ALL
SELECT 'pg_cron calls it', EXISTS (SELECT FROM cron.job j WHERE j.jobname = 'mailgres-process' AND j.active);
