-- Schedules a job that calls `mailgres serve` by pg_net every two minutes, with the secret from Vault.
--
-- Run this in the SQL editor (as postgres), after the steps of README.md that put the two secrets
-- mailgres_url and mailgres_serve_secret into Vault. Running it again replaces the job.
--
-- The job contains no secret: cron.job is readable, and its commands appear in logs and dumps.

CREATE EXTENSION IF NOT EXISTS pg_cron;
CREATE EXTENSION IF NOT EXISTS pg_net;

SELECT cron.schedule('mailgres-process', '*/2 * * * *', $job$
DO $$
DECLARE
    v_url    text := (SELECT decrypted_secret FROM vault.decrypted_secrets WHERE name = 'mailgres_url');
    v_secret text := (SELECT decrypted_secret FROM vault.decrypted_secrets WHERE name = 'mailgres_serve_secret');
BEGIN
    -- A call without them would fail silently; this error is in cron.job_run_details.
    IF coalesce(v_url, '') = '' OR coalesce(v_secret, '') = '' THEN
        RAISE EXCEPTION 'Vault lacks the secret mailgres_url or mailgres_serve_secret';
    END IF;
    PERFORM net.http_post(
        url := rtrim(v_url, '/') || '/functions/v1/process-email-queue',
        headers := jsonb_build_object(
            'Content-Type', 'application/json',
            'Authorization', 'Bearer ' || v_secret),
        body := jsonb_build_object('batchSize', 100),
        timeout_milliseconds := 100000);
END
$$
$job$);
