-- Which alerts fire, and the notifications about them: one when an alert fires, one when it resolves.
-- An alert resolves when its rule was false for five minutes, and people are notified of it again after
-- 15 minutes at the earliest, so an alert that comes and goes causes no flood. One message has all
-- new alerts; the next one is sent after five minutes, or at once if a critical alert fires.

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
    -- There is no notification about a rule that was disabled.
    DELETE FROM mailgres.alerts a
    WHERE a.notified <> 'firing' AND a.resolved_at <= mailgres.now() - interval '7 days'
       OR NOT (SELECT r.enabled FROM mailgres.alert_rules r WHERE r.name = a.rule);
END
$$;

COMMENT ON FUNCTION mailgres.update_alerts() IS 'Updates mailgres.alerts: which alerts fire and which have resolved.';

-- An alert that resolved before people were notified of it is left out.
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

COMMENT ON FUNCTION mailgres.unnotified_alerts() IS 'Alerts that people have to be notified of: they fire, or have resolved.';

-- At most 20 alerts that fire and 20 that resolved.
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

COMMENT ON FUNCTION mailgres.alert_notification(text, jsonb) IS 'The notification about alerts for one audience.';

-- An email about failing alert emails would fail, too.
CREATE FUNCTION mailgres.is_worth_email(p_alerts jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN EXISTS (
    SELECT FROM jsonb_array_elements(p_alerts) e
    WHERE NOT (e ->> 'about' = 'template' AND e ->> 'subject' = 'mailgres_alert'));

COMMENT ON FUNCTION mailgres.is_worth_email(jsonb) IS 'Whether any of the alerts is about something else than alert emails.';

CREATE FUNCTION mailgres.notify_alerts(p_state mailgres.notification_state, p_email text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
DECLARE
    v_alerts  jsonb;
    v_to_log  jsonb;
    v         record;
BEGIN
    PERFORM mailgres.update_alerts();
    v_alerts := mailgres.unnotified_alerts();
    IF v_alerts = '[]' OR p_state.alerts_at > mailgres.now() - interval '5 minutes'
       AND NOT v_alerts @> '[{"state": "firing", "severity": "critical"}]' THEN
        RETURN '[]';
    END IF;

    v_to_log := mailgres.add_notification(
        mailgres.alert_notification('operators', v_alerts), CASE WHEN mailgres.is_worth_email(v_alerts) THEN p_email END);
    FOR v IN
        SELECT DISTINCT t.tenant_id, t.contact_email
        FROM jsonb_array_elements(v_alerts) e
        JOIN mailgres.tenants t ON t.tenant_id = e ->> 'subject'
        WHERE e ->> 'about' = 'tenant' AND mailgres.is_address(t.contact_email)
        ORDER BY t.tenant_id
    LOOP
        v_to_log := v_to_log
            || mailgres.add_notification(mailgres.alert_notification('tenant:' || v.tenant_id, v_alerts), v.contact_email);
    END LOOP;

    UPDATE mailgres.alerts a SET notified = e ->> 'state', notified_at = mailgres.now()
    FROM jsonb_array_elements(v_alerts) e
    WHERE a.rule = e ->> 'rule' AND a.subject = e ->> 'subject';
    UPDATE mailgres.notification_state n SET alerts_at = mailgres.now();
    RETURN v_to_log;
END
$$;

COMMENT ON FUNCTION mailgres.notify_alerts(mailgres.notification_state, text) IS
    'Finds which alerts fire and which have resolved, and adds the notifications; returns what to log.';
