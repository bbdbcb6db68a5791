-- Changing the rules by which events suppress addresses. What a rule is about (its event, the kind of a
-- bounce, the reasons that say nothing about the mailbox) stays as it is.

-- The rules of a new database. sql/50_seed/15_suppression_rules.sql has the same rows.
CREATE FUNCTION mailgres.default_suppression_rules() RETURNS SETOF mailgres.suppression_rules
    LANGUAGE sql IMMUTABLE
AS $$
    SELECT r.* FROM (VALUES
        ('hard_bounce', 'bounced', 'hard', '{content,size,reputation,policy}'::text[], 1, 'bounced', true,
         NULL::interval, true),
        ('soft_bounces', 'bounced', 'soft', '{content,size,reputation,policy}', 5, 'soft_bounced', true, '30 days', true),
        ('complaint', 'complained', NULL, '{}', 1, 'complained', false, NULL, true),
        ('unsubscribe', 'unsubscribed', NULL, '{}', 1, 'unsubscribed', false, NULL, true),
        ('suppressed_by_provider', 'suppressed', NULL, '{}', 1, 'bounced', true, NULL, false)
    ) r(name, event, kind, except_reasons, needed, reason, for_all, expires_after, enabled)
$$;

COMMENT ON FUNCTION mailgres.default_suppression_rules() IS 'The suppression rules of a new database.';

CREATE FUNCTION mailgres.require_suppression_rule(p_name text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM mailgres.suppression_rules r WHERE r.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG092', format('there is no suppression rule %L', left(p_name, 100)),
            format('Known rules: %s.',
                   (SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM mailgres.suppression_rules r)));
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.require_suppression_rule(text) IS
    'Locks a suppression rule, and refuses the name of an unknown one.';

-- p_settings: the columns to change: needed, for_all, expires_after (null: never), enabled. Others stay.
CREATE FUNCTION mailgres.set_suppression_rule(p_name text, p_settings jsonb) RETURNS mailgres.suppression_rules
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_settings  constant text[] := '{needed,for_all,expires_after,enabled}';
    v_rule      mailgres.suppression_rules;
BEGIN
    PERFORM mailgres.require_suppression_rule(p_name);
    IF p_settings IS NULL OR jsonb_typeof(p_settings) <> 'object' OR p_settings - c_settings <> '{}'
       OR EXISTS (SELECT FROM jsonb_each(p_settings) s WHERE s.key <> 'expires_after' AND s.value = 'null') THEN
        PERFORM mailgres.refuse('MG093', format('the settings of the suppression rule %L are not valid', p_name),
            format('Give an object with some of: %s.', array_to_string(c_settings, ', ')));
    END IF;
    SELECT * INTO v_rule FROM mailgres.suppression_rules r WHERE r.name = p_name;
    v_rule := jsonb_populate_record(v_rule, p_settings);
    UPDATE mailgres.suppression_rules r
    SET (needed, for_all, expires_after, enabled)
        = (v_rule.needed, v_rule.for_all, v_rule.expires_after, v_rule.enabled)
    WHERE r.name = p_name
    RETURNING * INTO v_rule;
    RETURN v_rule;
EXCEPTION
    WHEN check_violation OR data_exception THEN
        PERFORM mailgres.refuse('MG093', format('the settings of the suppression rule %L are not valid', p_name),
            'Give 1 to 100 emails, and an expiry above zero and of at most 1000 years.');
END
$$;

COMMENT ON FUNCTION mailgres.set_suppression_rule(text, jsonb) IS
    'Changes a suppression rule and returns it; it holds for events that come from now on.';

CREATE FUNCTION mailgres.reset_suppression_rule(p_name text) RETURNS mailgres.suppression_rules
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_rule mailgres.suppression_rules;
BEGIN
    PERFORM mailgres.require_suppression_rule(p_name);
    UPDATE mailgres.suppression_rules r
    SET (event, kind, except_reasons, needed, reason, for_all, expires_after, enabled)
        = (d.event, d.kind, d.except_reasons, d.needed, d.reason, d.for_all, d.expires_after, d.enabled)
    FROM mailgres.default_suppression_rules() d
    WHERE r.name = p_name AND d.name = p_name
    RETURNING r.* INTO v_rule;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG093', format('the suppression rule %L has no default', p_name),
            'A person inserted it: change it with `mailgres suppressions set-rule`.');
    END IF;
    RETURN v_rule;
END
$$;

COMMENT ON FUNCTION mailgres.reset_suppression_rule(text) IS 'Gives a suppression rule its default again, and returns it.';
