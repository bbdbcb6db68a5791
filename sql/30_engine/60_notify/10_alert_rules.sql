-- Changing the alert rules.

CREATE FUNCTION mailgres.set_alert_rule(
    p_name text, p_threshold double precision DEFAULT NULL, p_time_window interval DEFAULT NULL,
    p_severity text DEFAULT NULL, p_enabled boolean DEFAULT NULL
) RETURNS mailgres.alert_rules
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_rule mailgres.alert_rules;
BEGIN
    SELECT * INTO v_rule FROM mailgres.alert_rules r WHERE r.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG090', format('there is no alert rule %L', left(p_name, 100)),
            format('Known rules: %s.', (SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM mailgres.alert_rules r)));
    ELSIF NOT coalesce(p_threshold >= 0 AND p_threshold < 'infinity'
                       AND (v_rule.unit <> '%' OR p_threshold <= 100), true) THEN
        PERFORM mailgres.refuse('MG091', format('%s is not a threshold of %s', p_threshold, p_name),
            format('Give a number of %s, 0 or more%s.', v_rule.unit, CASE v_rule.unit WHEN '%' THEN ', at most 100' ELSE '' END));
    ELSIF p_time_window IS NOT NULL AND v_rule.time_window IS NULL THEN
        PERFORM mailgres.refuse('MG091', format('%s has no window', p_name), 'Set its threshold instead.');
    ELSIF p_time_window <= '0' OR p_time_window > '7 days' THEN
        PERFORM mailgres.refuse('MG091', 'the window must be more than 0 and at most 7 days',
            format('It is %s now.', v_rule.time_window));
    ELSIF p_severity NOT IN ('info', 'warning', 'critical') THEN
        PERFORM mailgres.refuse('MG091', format('%L is not a severity', left(p_severity, 100)),
            'Give info, warning or critical.');
    END IF;
    UPDATE mailgres.alert_rules r
    SET threshold = coalesce(p_threshold, r.threshold), time_window = coalesce(p_time_window, r.time_window),
        severity = coalesce(p_severity, r.severity), enabled = coalesce(p_enabled, r.enabled)
    WHERE r.name = p_name
    RETURNING * INTO v_rule;
    RETURN v_rule;
END
$$;

COMMENT ON FUNCTION mailgres.set_alert_rule(text, double precision, interval, text, boolean) IS
    'Changes an alert rule and returns it; null arguments change nothing.';
