-- Creates the user that mailgres connects as: it may process the queue and nothing else. Run this in the
-- SQL editor (as postgres), after `mailgres migrate`. Then set its password, as README.md says.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'mailgres_worker_login') THEN
        CREATE ROLE mailgres_worker_login;
    END IF;
END
$$;

ALTER ROLE mailgres_worker_login LOGIN INHERIT CONNECTION LIMIT 30;
GRANT mailgres_worker TO mailgres_worker_login;

-- Set grants and row security of the queue for the roles that exist now.
SELECT mailgres.secure();
