-- The signatures of pg_cron, pg_net and Vault as Supabase has them; what is called is written down.

CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schedule text NOT NULL, command text NOT NULL,
    nodename text NOT NULL DEFAULT 'localhost', nodeport int NOT NULL DEFAULT 5432,
    database text NOT NULL DEFAULT current_database(), username text NOT NULL DEFAULT current_user,
    active boolean NOT NULL DEFAULT true, jobname text, UNIQUE (jobname, username));
CREATE TABLE cron.job_run_details (
    jobid bigint, runid bigint, job_pid int, database text, username text, command text, status text,
    return_message text, start_time timestamptz, end_time timestamptz);
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO cron.job (jobname, schedule, command) VALUES (job_name, schedule, command)
    ON CONFLICT (jobname, username) DO UPDATE SET schedule = excluded.schedule, command = excluded.command
    RETURNING jobid $$;
CREATE FUNCTION cron.unschedule(job_id bigint) RETURNS boolean LANGUAGE sql AS $$
    DELETE FROM cron.job WHERE jobid = job_id RETURNING true $$;

CREATE SCHEMA net;
CREATE TABLE net.called (
    id bigint GENERATED ALWAYS AS IDENTITY, url text NOT NULL, body jsonb, params jsonb, headers jsonb,
    timeout_milliseconds int NOT NULL);
CREATE FUNCTION net.http_post(
    url text, body jsonb DEFAULT '{}', params jsonb DEFAULT '{}',
    headers jsonb DEFAULT '{"Content-Type": "application/json"}', timeout_milliseconds int DEFAULT 5000
) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO net.called (url, body, params, headers, timeout_milliseconds)
    VALUES ($1, $2, $3, $4, $5) RETURNING id $$;

CREATE SCHEMA vault;
CREATE TABLE vault.secrets (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text UNIQUE, description text NOT NULL DEFAULT '',
    secret text NOT NULL);
CREATE VIEW vault.decrypted_secrets AS
    SELECT id, name, description, reverse(secret) AS secret, secret AS decrypted_secret FROM vault.secrets;
CREATE FUNCTION vault.create_secret(
    new_secret text, new_name text DEFAULT NULL, new_description text DEFAULT '', new_key_id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE sql AS $$
    INSERT INTO vault.secrets (secret, name, description) VALUES (new_secret, new_name, new_description)
    RETURNING id $$;
CREATE FUNCTION vault.update_secret(
    secret_id uuid, new_secret text DEFAULT NULL, new_name text DEFAULT NULL, new_description text DEFAULT NULL,
    new_key_id uuid DEFAULT NULL
) RETURNS void LANGUAGE sql AS $$
    UPDATE vault.secrets SET secret = coalesce(new_secret, secret) WHERE id = secret_id $$;
