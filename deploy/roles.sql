-- The two login roles of mailgres: mailgres_owner for `mailgres migrate`, mailgres_worker_login for
-- everything else that runs. Neither is a superuser, and neither needs CREATEROLE.
--
-- Run it as an administrator, in the database of the queue, before the first `mailgres migrate`:
--     psql -U postgres -d app -v ON_ERROR_STOP=1 -f deploy/roles.sql
-- Then give each a password with \password, which sends only its hash. Running this file again does no harm.

DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY[
        'mailgres_producer', 'mailgres_worker', 'mailgres_operator', 'mailgres_analyst',
        'mailgres_owner', 'mailgres_worker_login']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
    END LOOP;
    -- The owner creates the schema mailgres.
    EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO mailgres_owner', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO mailgres_worker_login', current_database());
END
$$;

ALTER ROLE mailgres_owner LOGIN;
ALTER ROLE mailgres_worker_login LOGIN INHERIT;
GRANT mailgres_worker TO mailgres_worker_login;

-- The owner also creates tables, views and functions in public.
GRANT USAGE, CREATE ON SCHEMA public TO mailgres_owner;
GRANT USAGE ON SCHEMA public TO mailgres_worker;
