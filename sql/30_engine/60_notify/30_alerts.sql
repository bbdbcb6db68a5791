-- Which alerts fire, and telling of them: each once when it fires, once when it is over.
-- It is over when it was not so for five minutes, and is told of again after 15 at the
-- earliest, so what comes and goes makes no storm. All that is to be told at a time is
-- one message; the next comes after five minutes, unless something critical fires.

CREATE FUNCTION mailgres.rounded(p_figure double precision) RETURNS numeric
    LANGUAGE sql IMMUTABLE
RETURN trim_scale(round(p_figure::numeric, 1));

COMMENT ON FUNCTION mailgres.rounded(double precision) IS 'A figure for people.';

CREATE FUNCTION mailgres.alerts_now()
    RETURNS TABLE (
        rule text, subject text, severity text, figure numeric, threshold numeric, unit text,
        since timestamptz, means text, runbook text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.name, f.subject, r.severity, mailgres.rounded(f.figure), mailgres.rounded(r.threshold), r.unit,
           coalesce(a.since, f.since, mailgres.now()), r.means, r.runbook
    FROM (
        SELECT * FROM mailgres.figures_of_waiting()
        UNION ALL SELECT * FROM mailgres.figures_of_emails()
        UNION ALL SELECT * FROM mailgres.figures_of_outcomes()
        UNION ALL SELECT * FROM mailgres.figures_of_providers()
        UNION ALL SELECT * FROM mailgres.figures_of_database()
    ) f
    JOIN mailgres.alert_rules r ON r.name = f.rule
    LEFT JOIN mailgres.alerts a ON a.rule = f.rule AND a.subject = f.subject AND a.resolved_at IS NULL
    WHERE r.enabled AND (f.sample IS NULL OR f.sample >= r.least)
      AND (f.figure > r.threshold OR f.figure = r.threshold AND r.reaches)
    ORDER BY array_position('{critical,warning,info}', r.severity), r.name, f.figure DESC, f.subject;
END
$$;

COMMENT ON FUNCTION mailgres.alerts_now() IS
    'The alerts that fire at this moment, the most severe first.';

-- Keeps what fires and what is over.
CREATE FUNCTION mailgres.update_alerts() RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_settles constant interval := '5 minutes';
BEGIN
    INSERT INTO mailgres.alerts AS a (rule, subject, figure, since, seen_at)
    SELECT n.rule, n.subject, n.figure, n.since, mailgres.now() FROM mailgres.alerts_now() n
    ON CONFLICT (rule, subject) DO UPDATE
        SET figure = excluded.figure, seen_at = excluded.seen_at, resolved_at = NULL,
            since = CASE WHEN a.resolved_at IS NULL THEN a.since ELSE excluded.since END;
    UPDATE mailgres.alerts a SET resolved_at = mailgres.now()
    WHERE a.resolved_at IS NULL AND a.seen_at <= mailgres.now() - c_settles;
    -- Of a rule that was switched off nobody wants to hear.
    DELETE FROM mailgres.alerts a
    WHERE a.notified <> 'firing' AND a.resolved_at <= mailgres.now() - interval '7 days'
       OR NOT (SELECT r.enabled FROM mailgres.alert_rules r WHERE r.name = a.rule);
END
$$;

COMMENT ON FUNCTION mailgres.update_alerts() IS 'Keeps which alerts fire now and which are over.';

-- What has to be told. Of an alert that was over before anybody was told, nobody is.
CREATE FUNCTION mailgres.unnotified_alerts() RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY x.rank, x.rule, x.figure DESC, x.subject), '[]')
        FROM (
            SELECT a.rule, r.about, a.subject, s.state, r.severity,
                   array_position('{critical,warning,info}', r.severity) AS rank,
                   mailgres.rounded(a.figure) AS figure, mailgres.rounded(r.threshold) AS threshold, r.unit,
                   a.since, a.resolved_at, r.means, r.runbook
            FROM mailgres.alerts a
            JOIN mailgres.alert_rules r ON r.name = a.rule
            CROSS JOIN LATERAL (SELECT CASE WHEN a.resolved_at IS NULL THEN 'firing' ELSE 'resolved' END AS state) s
            WHERE CASE s.state
                WHEN 'firing' THEN a.notified <> 'firing'
                    AND (a.notified_at IS NULL OR a.notified_at <= mailgres.now() - interval '15 minutes')
                ELSE a.notified = 'firing' END
        ) x);
END
$$;

COMMENT ON FUNCTION mailgres.unnotified_alerts() IS 'Alerts that people have to be to_log of: they fire, or are over.';

-- One message for one audience, with no more than 20 that fire and 20 that are over.
CREATE FUNCTION mailgres.alert_notification(p_audience text, p_alerts jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_most  constant int := 20;
    v       record;
BEGIN
    SELECT coalesce(jsonb_agg(x.alert ORDER BY x.ord) FILTER (WHERE x.state = 'firing' AND x.number <= c_most), '[]')
               AS firing,
           coalesce(jsonb_agg(x.alert ORDER BY x.ord) FILTER (WHERE x.state = 'resolved' AND x.number <= c_most), '[]')
               AS resolved,
           count(*) FILTER (WHERE x.number > c_most) AS more,
           count(*) FILTER (WHERE x.state = 'firing') AS fire
    INTO v
    FROM (
        SELECT e.alert - 'state' - 'rank' AS alert, e.alert ->> 'state' AS state, e.ord,
               row_number() OVER (PARTITION BY e.alert ->> 'state' ORDER BY e.ord) AS number
        FROM jsonb_array_elements(p_alerts) WITH ORDINALITY AS e(alert, ord)
        WHERE p_audience = 'operators'
           OR e.alert ->> 'about' = 'tenant' AND 'tenant:' || (e.alert ->> 'subject') = p_audience
    ) x;
    RETURN jsonb_build_object(
        'event', 'Alerts', 'audience', p_audience, 'at', mailgres.now(), 'new', v.fire,
        'firing', v.firing, 'resolved', v.resolved, 'more', v.more);
END
$$;

COMMENT ON FUNCTION mailgres.alert_notification(text, jsonb) IS 'What an audience is to_log of alerts.';

-- An email about emails of this kind that fail would fail, too.
CREATE FUNCTION mailgres.is_worth_email(p_alerts jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN EXISTS (
    SELECT FROM jsonb_array_elements(p_alerts) e
    WHERE NOT (e ->> 'about' = 'template' AND e ->> 'subject' = 'mailgres_alert'));

COMMENT ON FUNCTION mailgres.is_worth_email(jsonb) IS 'Whether alerts are about anything but the emails that tell of them.';

CREATE FUNCTION mailgres.check_alerts(p_email text DEFAULT NULL, OUT handled int, OUT to_log jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_state  mailgres.notification_state := mailgres.lock_notification_state();
    v_unnotified   jsonb;
    v          record;
BEGIN
    handled := 0;
    to_log := '[]';
    PERFORM mailgres.update_alerts();
    v_unnotified := mailgres.unnotified_alerts();
    IF v_unnotified = '[]' OR v_state.alerts_at > mailgres.now() - interval '5 minutes'
       AND NOT v_unnotified @> '[{"state": "firing", "severity": "critical"}]' THEN
        RETURN;
    END IF;

    to_log := to_log || mailgres.notify(
        mailgres.alert_notification('operators', v_unnotified), CASE WHEN mailgres.is_worth_email(v_unnotified) THEN p_email END);
    FOR v IN
        SELECT DISTINCT t.tenant_id, t.contact_email
        FROM jsonb_array_elements(v_unnotified) e
        JOIN mailgres.tenants t ON t.tenant_id = e ->> 'subject'
        WHERE e ->> 'about' = 'tenant' AND mailgres.is_address(t.contact_email)
        ORDER BY t.tenant_id
    LOOP
        to_log := to_log || mailgres.notify(mailgres.alert_notification('tenant:' || v.tenant_id, v_unnotified), v.contact_email);
    END LOOP;

    UPDATE mailgres.alerts a SET notified = e ->> 'state', notified_at = mailgres.now()
    FROM jsonb_array_elements(v_unnotified) e
    WHERE a.rule = e ->> 'rule' AND a.subject = e ->> 'subject';
    GET DIAGNOSTICS handled = ROW_COUNT;
    UPDATE mailgres.notification_state n SET alerts_at = mailgres.now() WHERE n.audience = 'operators';
END
$$;

COMMENT ON FUNCTION mailgres.check_alerts(text) IS
    'Finds which alerts fire and which are over, and tells people what they do not know; returns how many, and what to log.';
