-- The notifier, in one transaction: takes dead letters to log, notifies people of alerts and of dead
-- letters, and takes notifications for the webhook. The process that called it writes the log and
-- calls the webhook after the commit. A process without a log (pg_cron) gives no limit and takes nothing
-- to log; one without a webhook leaves the notifications to another process, for up to an hour.

CREATE FUNCTION mailgres.notify(
    p_limit int DEFAULT 1000, p_email text DEFAULT NULL, p_webhook text DEFAULT NULL,
    OUT handled int, OUT to_log jsonb, OUT to_post jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_state constant mailgres.notification_state := mailgres.lock_notification_state();
BEGIN
    to_log := CASE WHEN p_limit > 0 THEN mailgres.log_dead_letters(p_limit) ELSE '[]' END
              || mailgres.notify_alerts(v_state, p_email)
              || mailgres.notify_dead_letters(v_state, p_email);
    to_post := mailgres.take_notifications(v_state, p_webhook);
    handled := jsonb_array_length(to_log) + jsonb_array_length(to_post);
END
$$;

COMMENT ON FUNCTION mailgres.notify(int, text, text) IS
    'Logs dead letters and notifies people of alerts and dead letters; returns how many, what to log and what to post.';
