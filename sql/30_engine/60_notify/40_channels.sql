-- The channels of a notification: an email through the queue, which is enqueued in the transaction of
-- the notifier, and the webhook, which a process calls after the commit. A webhook that fails ten times
-- in a row is switched off.

CREATE FUNCTION mailgres.enqueue_alert(p_to text, p_payload jsonb) RETURNS text
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_to IS NOT NULL THEN
        PERFORM public.enqueue_email(NULL, 'mailgres_alert', p_to, p_payload, p_priority => 2);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;  -- the log and the webhook remain
END
$$;

COMMENT ON FUNCTION mailgres.enqueue_alert(text, jsonb) IS
    'Enqueues an alert; returns the error, or null.';

-- Operators get an email and a call of the webhook, the contact of a tenant an email.
CREATE FUNCTION mailgres.add_notification(p_notification jsonb, p_email text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_notification ->> 'audience' = 'operators' THEN
        INSERT INTO mailgres.notifications (body) VALUES (p_notification);
    END IF;
    RETURN jsonb_build_array(
        p_notification || jsonb_build_object('mail_error', mailgres.enqueue_alert(p_email, p_notification)));
END
$$;

COMMENT ON FUNCTION mailgres.add_notification(jsonb, text) IS
    'Adds a notification to the channels of its audience; returns what to log, as an array.';

-- Two notifiers, or a notifier and the result of a call, do not run at once.
CREATE FUNCTION mailgres.lock_notification_state() RETURNS mailgres.notification_state
    LANGUAGE plpgsql
AS $$
DECLARE
    v_state mailgres.notification_state;
BEGIN
    INSERT INTO mailgres.notification_state DEFAULT VALUES ON CONFLICT DO NOTHING;
    SELECT * INTO v_state FROM mailgres.notification_state n FOR UPDATE;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION mailgres.lock_notification_state() IS 'Locks and returns the state of the notifier.';

-- Notifications expire after an hour. A process that takes some has a minute to deliver them.
CREATE FUNCTION mailgres.take_notifications(p_state mailgres.notification_state, p_webhook text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
DECLARE
    v_taken jsonb;
BEGIN
    DELETE FROM mailgres.notifications n WHERE n.at <= mailgres.now() - interval '1 hour';
    IF p_webhook IS NULL OR p_state.webhook = p_webhook AND p_state.webhook_off_since IS NOT NULL THEN
        RETURN '[]';
    END IF;
    WITH taken AS (
        UPDATE mailgres.notifications n SET taken_until = mailgres.now() + interval '1 minute'
        WHERE n.id = ANY (ARRAY(
            SELECT x.id FROM mailgres.notifications x
            WHERE x.taken_until IS NULL OR x.taken_until <= mailgres.now()
            ORDER BY x.attempts, x.id LIMIT 5))  -- one that always fails delays no other
        RETURNING n.id, n.body
    )
    SELECT coalesce(jsonb_agg(t.body || jsonb_build_object('id', t.id) ORDER BY t.id), '[]') INTO v_taken FROM taken t;
    RETURN v_taken;
END
$$;

COMMENT ON FUNCTION mailgres.take_notifications(mailgres.notification_state, text) IS
    'Takes notifications for the webhook with that digest, unless it is switched off.';

CREATE FUNCTION mailgres.record_webhook_result(p_webhook text, p_ok boolean, p_notification bigint DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_failures  constant int := 10;
    v_failures  int;
BEGIN
    PERFORM mailgres.lock_notification_state();
    DELETE FROM mailgres.notifications n WHERE n.id = p_notification AND p_ok;
    UPDATE mailgres.notifications n
    SET attempts = n.attempts + 1, taken_until = mailgres.now() + interval '1 minute'
    WHERE n.id = p_notification;
    UPDATE mailgres.notification_state n
    SET webhook = p_webhook,
        webhook_failures = CASE WHEN p_ok THEN 0 WHEN n.webhook = p_webhook THEN n.webhook_failures ELSE 0 END
                           + (NOT p_ok)::int,
        webhook_off_since = CASE WHEN n.webhook = p_webhook AND NOT p_ok THEN n.webhook_off_since END
    RETURNING n.webhook_failures INTO v_failures;
    IF v_failures IS DISTINCT FROM c_failures THEN
        RETURN false;
    END IF;
    UPDATE mailgres.notification_state n SET webhook_off_since = mailgres.now();
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.record_webhook_result(text, boolean, bigint) IS
    'Records whether a call of the webhook succeeded; returns whether that switched the webhook off.';

CREATE FUNCTION mailgres.reset_webhook() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.notification_state n SET webhook_failures = 0, webhook_off_since = NULL
    WHERE n.webhook_off_since IS NOT NULL;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.reset_webhook() IS
    'Switches the alert webhook on again; returns false if it was on.';
