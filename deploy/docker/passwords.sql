-- Runs once, after roles.sql, when compose starts PostgreSQL with an empty volume. The passwords come
-- from the environment and do not reach the server's log.

SET log_statement = 'none';
SET log_min_duration_statement = -1;
SET log_min_error_statement = 'panic';

\getenv owner_password OWNER_PASSWORD
\getenv worker_password WORKER_PASSWORD
ALTER ROLE mailgres_owner PASSWORD :'owner_password';
ALTER ROLE mailgres_worker_login PASSWORD :'worker_password';

-- mailgres needs no temporary objects (docs/security.md).
DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$;
