-- The user that mailgres connects as: it may work the queue and nothing else. Run it in the SQL
-- editor (as postgres), after `mailgres migrate`; then give it a password, for which see README.md.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'mailgres_worker_login') THEN
        CREATE ROLE mailgres_worker_login;
    END IF;
END
$$;

ALTER ROLE mailgres_worker_login LOGIN INHERIT CONNECTION LIMIT 30;
GRANT mailgres_worker TO mailgres_worker_login;

-- Grants and row security of the queue as they should be, for the roles there are now.
SELECT mailgres.secure();
