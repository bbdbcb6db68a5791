-- Tells people of dead letters: the operators of all, by a log line, an email and a
-- webhook (the last two by the worker's settings), a tenant's contact of its own, by an
-- email. At most one message in 15 minutes to each. The emails go through the queue; that
-- one of them died is nothing to write about.

CREATE FUNCTION mailgres.send_alert(p_to text, p_payload jsonb) RETURNS text
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

COMMENT ON FUNCTION mailgres.send_alert(text, jsonb) IS
    'Enqueues an alert; returns why it could not, or null.';

-- What the dead letters of a time have in common, most frequent first.
CREATE FUNCTION mailgres.dead_reasons(p_since timestamptz, p_until timestamptz, p_tenant text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]')
        FROM (
            SELECT d.dead_reason AS reason, d.error_code AS code, d.template_type AS template, count(*) AS emails
            FROM (
                SELECT q.dead_reason, q.error_code, q.template_type
                FROM public.email_queue q
                WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
                  AND q.template_type <> 'mailgres_alert' AND (p_tenant IS NULL OR q.tenant_id = p_tenant)
                ORDER BY q.due_at DESC LIMIT 10000
            ) d
            GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT 10
        ) r);
END
$$;

COMMENT ON FUNCTION mailgres.dead_reasons(timestamptz, timestamptz, text) IS
    'Reasons, codes and templates of the dead letters of a time.';

-- Counts those that are new, for whom they concern.
CREATE FUNCTION mailgres.count_dead(p_since timestamptz, p_until timestamptz) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH dead AS MATERIALIZED (
        SELECT q.tenant_id::text AS tenant_id, count(*) AS emails
        FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
          AND q.template_type <> 'mailgres_alert'
        GROUP BY 1
    ), of_tenants AS (
        INSERT INTO mailgres.notices AS n (audience, seen_until, waiting)
        SELECT 'tenant:' || d.tenant_id, p_since, d.emails
        FROM dead d JOIN mailgres.tenants t ON t.tenant_id = d.tenant_id
        WHERE mailgres.is_address(t.contact_email)
        ON CONFLICT (audience) DO UPDATE
            SET waiting = n.waiting + excluded.waiting,
                seen_until = CASE WHEN n.waiting = 0 THEN excluded.seen_until ELSE n.seen_until END
    )
    UPDATE mailgres.notices n
    SET waiting = n.waiting + (SELECT coalesce(sum(d.emails), 0) FROM dead d), seen_until = p_until
    WHERE n.audience = 'operators'
    RETURNING (SELECT coalesce(sum(d.emails), 0) FROM dead d) INTO v_count;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.count_dead(timestamptz, timestamptz) IS
    'Counts new dead letters for the operators and for tenants with a contact.';

CREATE FUNCTION mailgres.tell(
    p_limit int DEFAULT 10000, p_email text DEFAULT NULL, p_webhook text DEFAULT NULL,
    OUT handled int, OUT told jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    -- Who died in a transaction that is not over yet is found the next time.
    v_until  timestamptz := mailgres.now() - interval '10 seconds';
    v_since  timestamptz;
    v_first  timestamptz;
    v_total  bigint;
    v_level  text;
    v        record;
    v_notice jsonb;
BEGIN
    told := '[]';
    INSERT INTO mailgres.notices (audience) VALUES ('operators') ON CONFLICT DO NOTHING;
    SELECT n.seen_until INTO v_since FROM mailgres.notices n WHERE n.audience = 'operators' FOR UPDATE;
    v_first := (
        SELECT q.due_at FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > v_since AND q.due_at <= v_until
        ORDER BY q.due_at OFFSET p_limit - 1 LIMIT 1);
    handled := mailgres.count_dead(v_since, greatest(coalesce(v_first, v_until), v_since));
    IF v_first IS NOT NULL THEN
        handled := greatest(handled, p_limit);
        RETURN;  -- there are more: tell of all of them at once
    END IF;

    SELECT count(*) INTO v_total FROM (
        SELECT FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at IS NOT NULL AND q.template_type <> 'mailgres_alert' LIMIT 10001) x;
    v_level := CASE WHEN v_total > 10000 THEN 'ceiling' WHEN v_total > 100 THEN 'alarm' ELSE 'none' END;

    FOR v IN
        SELECT n.*, t.tenant_id, t.contact_email,
               array_position('{none,alarm,ceiling}', v_level) > array_position('{none,alarm,ceiling}', n.level) AS rises
        FROM mailgres.notices n
        LEFT JOIN mailgres.tenants t ON n.audience = 'tenant:' || t.tenant_id
        WHERE n.audience = 'operators' OR n.waiting > 0
        ORDER BY n.audience
        FOR UPDATE OF n
    LOOP
        IF v.audience = 'operators' AND NOT v.rises THEN
            UPDATE mailgres.notices n SET level = v_level WHERE n.audience = v.audience AND n.level <> v_level;
        END IF;
        CONTINUE WHEN v.told_at > mailgres.now() - interval '15 minutes';
        CONTINUE WHEN v.waiting = 0 AND (v.audience <> 'operators' OR NOT v.rises);
        v_notice := jsonb_build_object(
            'event', 'DeadLetters', 'audience', v.audience, 'at', mailgres.now(), 'new', v.waiting,
            'total', CASE WHEN v.audience = 'operators' THEN v_total END,
            'level', CASE WHEN v.audience = 'operators' THEN v_level ELSE 'none' END,
            'reasons', mailgres.dead_reasons(
                CASE WHEN v.audience = 'operators' THEN coalesce(v.told_at - interval '10 seconds', '-infinity')
                     ELSE v.seen_until END, v_until, v.tenant_id));
        told := told || (v_notice || jsonb_build_object(
            'mail', mailgres.send_alert(CASE WHEN v.audience = 'operators' THEN p_email ELSE v.contact_email END, v_notice),
            'webhook', v.audience = 'operators' AND p_webhook IS NOT NULL
                AND (v.webhook_off_since IS NULL OR v.webhook IS DISTINCT FROM p_webhook)));
        UPDATE mailgres.notices n
        SET waiting = 0, told_at = mailgres.now(),
            level = CASE WHEN v.audience = 'operators' THEN v_level ELSE 'none' END
        WHERE n.audience = v.audience;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.tell(int, text, text) IS
    'Tells people of new dead letters: enqueues emails; returns how many were new, and what to log and to post.';

CREATE FUNCTION mailgres.note_webhook(p_webhook text, p_ok boolean, p_email text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
DECLARE
    c_most      constant int := 10;
    v_failures  int;
BEGIN
    UPDATE mailgres.notices n
    SET webhook = p_webhook,
        webhook_failures = CASE WHEN p_ok THEN 0 WHEN n.webhook = p_webhook THEN n.webhook_failures ELSE 0 END
                           + (NOT p_ok)::int,
        webhook_off_since = CASE WHEN n.webhook = p_webhook AND NOT p_ok THEN n.webhook_off_since END
    WHERE n.audience = 'operators'
    RETURNING n.webhook_failures INTO v_failures;
    IF v_failures IS DISTINCT FROM c_most THEN
        RETURN false;
    END IF;
    UPDATE mailgres.notices n SET webhook_off_since = mailgres.now() WHERE n.audience = 'operators';
    PERFORM mailgres.send_alert(p_email, jsonb_build_object(
        'event', 'WebhookOff', 'at', mailgres.now(), 'failures', v_failures));
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.note_webhook(text, boolean, text) IS
    'Notes whether a call of the webhook succeeded; returns whether it is switched off by that.';
