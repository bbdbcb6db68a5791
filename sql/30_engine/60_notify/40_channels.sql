-- How people are told, whatever of: by an email through the queue, which is part of the
-- transaction that finds the news, and by a webhook, which is called when that is
-- committed. A webhook that fails ten times in a row is switched off.

CREATE FUNCTION mailgres.enqueue_alert(p_to text, p_payload jsonb) RETURNS text
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_to IS NOT NULL THEN
        PERFORM public.enqueue_email(NULL, 'mailgres_alert', p_to, p_payload, p_priority => 2);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;  -- the log and the webhook have to do
END
$$;

COMMENT ON FUNCTION mailgres.enqueue_alert(text, jsonb) IS
    'Enqueues an alert; returns why it could not, or null.';

-- Operators by email and webhook, a tenant's contact by email.
CREATE FUNCTION mailgres.notify(p_notice jsonb, p_email text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_notice ->> 'audience' = 'operators' THEN
        INSERT INTO mailgres.notifications (body) VALUES (p_notice);
    END IF;
    RETURN p_notice || jsonb_build_object('mail', mailgres.enqueue_alert(p_email, p_notice));
END
$$;

COMMENT ON FUNCTION mailgres.notify(jsonb, text) IS
    'Tells people by email and, operators, by the webhook; returns what to log.';

-- The one row that holds what operators were told, locked: one at a time tells.
CREATE FUNCTION mailgres.lock_notification_state() RETURNS mailgres.notification_state
    LANGUAGE plpgsql
AS $$
DECLARE
    v_state mailgres.notification_state;
BEGIN
    INSERT INTO mailgres.notification_state (audience) VALUES ('operators') ON CONFLICT DO NOTHING;
    SELECT * INTO v_state FROM mailgres.notification_state n WHERE n.audience = 'operators' FOR UPDATE;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION mailgres.lock_notification_state() IS 'What the operators were told, locked.';

-- News that are an hour old are none. Who takes some has a minute to tell them.
CREATE FUNCTION mailgres.deliver_notifications(p_webhook text, OUT handled int, OUT notifications jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_old int;
BEGIN
    DELETE FROM mailgres.notifications n WHERE n.at <= mailgres.now() - interval '1 hour';
    GET DIAGNOSTICS v_old = ROW_COUNT;
    WITH taken AS (
        UPDATE mailgres.notifications n SET taken_until = mailgres.now() + interval '1 minute'
        WHERE p_webhook IS NOT NULL
          AND n.id = ANY (ARRAY(
            SELECT x.id FROM mailgres.notifications x
            WHERE (x.taken_until IS NULL OR x.taken_until <= mailgres.now())
              AND NOT EXISTS (
                SELECT FROM mailgres.notification_state o
                WHERE o.audience = 'operators' AND o.webhook = p_webhook AND o.webhook_off_since IS NOT NULL)
            ORDER BY x.id LIMIT 5
            FOR UPDATE SKIP LOCKED))
        RETURNING n.id, n.body
    )
    SELECT v_old + count(*), coalesce(jsonb_agg(t.body || jsonb_build_object('id', t.id) ORDER BY t.id), '[]')
    INTO handled, notifications FROM taken t;
END
$$;

COMMENT ON FUNCTION mailgres.deliver_notifications(text) IS
    'Takes news for the webhook with that digest, unless it is switched off.';

CREATE FUNCTION mailgres.record_webhook_result(p_webhook text, p_ok boolean, p_notification bigint DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_most      constant int := 10;
    c_attempts     constant int := 3;
    v_failures  int;
BEGIN
    PERFORM mailgres.lock_notification_state();
    DELETE FROM mailgres.notifications n WHERE n.id = p_notification AND (p_ok OR n.attempts >= c_attempts - 1);
    UPDATE mailgres.notifications n
    SET attempts = n.attempts + 1, taken_until = mailgres.now() + interval '1 minute'
    WHERE n.id = p_notification;
    UPDATE mailgres.notification_state n
    SET webhook = p_webhook,
        webhook_failures = CASE WHEN p_ok THEN 0 WHEN n.webhook = p_webhook THEN n.webhook_failures ELSE 0 END
                           + (NOT p_ok)::int,
        webhook_off_since = CASE WHEN n.webhook = p_webhook AND NOT p_ok THEN n.webhook_off_since END
    WHERE n.audience = 'operators'
    RETURNING n.webhook_failures INTO v_failures;
    IF v_failures IS DISTINCT FROM c_most THEN
        RETURN false;
    END IF;
    UPDATE mailgres.notification_state n SET webhook_off_since = mailgres.now() WHERE n.audience = 'operators';
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.record_webhook_result(text, boolean, bigint) IS
    'Notes whether a call of the webhook succeeded; returns whether it is switched off by that.';

CREATE FUNCTION mailgres.reset_webhook() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.notification_state n SET webhook_failures = 0, webhook_off_since = NULL
    WHERE n.audience = 'operators' AND n.webhook_off_since IS NOT NULL;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.reset_webhook() IS
    'Lets the alert webhook be called again; false if it was not switched off.';
