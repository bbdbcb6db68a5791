-- Retry policies, and the defaults of emails that set no value of their own. The first worker sets
-- the defaults from its own settings; after that only a command changes them.

CREATE FUNCTION mailgres.require_policy(p_name text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM mailgres.retry_policies p WHERE p.name = p_name) THEN
        PERFORM mailgres.refuse('MG010', format('there is no retry policy %L', left(p_name, 100)),
            format('Known policies: %s.',
                   (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p)));
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.require_policy(text) IS 'Refuses the name of an unknown policy.';

-- p_settings: the columns of retry_policies to change; others stay. Setting steps removes base,
-- and setting base removes steps.
CREATE FUNCTION mailgres.set_policy(p_name text, p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_policy  mailgres.retry_policies;
BEGIN
    SELECT * INTO v_policy FROM mailgres.retry_policies p WHERE p.name = p_name FOR UPDATE;
    IF NOT FOUND AND NOT (p_settings ? 'max_retries' AND (p_settings ? 'steps' OR p_settings ? 'base')) THEN
        PERFORM mailgres.refuse('MG010', format('there is no retry policy %L', p_name),
            format('To create it, give its retries and its waits. Known policies: %s.',
                   (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p)));
    END IF;
    v_policy.factor := coalesce(v_policy.factor, 2);
    v_policy.cap := coalesce(v_policy.cap, '1 day');
    v_policy.jitter_down := coalesce(v_policy.jitter_down, 0);
    v_policy.jitter_up := coalesce(v_policy.jitter_up, 0);
    v_policy.description := coalesce(v_policy.description, '');
    IF p_settings ? 'steps' THEN
        v_policy.base := NULL;
    ELSIF p_settings ? 'base' THEN
        v_policy.steps := NULL;
    END IF;
    v_policy := jsonb_populate_record(v_policy, p_settings || jsonb_build_object('name', p_name));
    INSERT INTO mailgres.retry_policies SELECT v_policy.*
    ON CONFLICT (name) DO UPDATE
        SET (max_retries, steps, base, factor, cap, jitter_down, jitter_up, description)
            = (excluded.max_retries, excluded.steps, excluded.base, excluded.factor, excluded.cap,
               excluded.jitter_down, excluded.jitter_up, excluded.description);
EXCEPTION
    WHEN check_violation OR not_null_violation OR data_exception THEN
        PERFORM mailgres.refuse('MG074', format('the retry policy %L is not valid', p_name),
            'Give a name of lower-case letters, 0 to 100 retries, and waits above zero: a list of steps, or a first wait with a factor from 1 to 10; jitter is a fraction from 0 to 1.');
END
$$;

COMMENT ON FUNCTION mailgres.set_policy(text, jsonb) IS 'Creates a retry policy, or changes one.';

CREATE FUNCTION mailgres.use_defaults(
    p_retry_policy text, p_expires_after interval,
    OUT was_initial boolean, OUT retry_policy text, OUT expires_after interval
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_policy(p_retry_policy);
    was_initial := false;
    IF EXISTS (SELECT FROM mailgres.settings s WHERE s.initial) THEN
        UPDATE mailgres.settings s
        SET initial = false, retry_policy = p_retry_policy, expires_after = p_expires_after
        WHERE s.initial AND s.retry_policy = 'stepped' AND s.expires_after IS NULL;
        was_initial := FOUND;
    END IF;
    SELECT s.retry_policy, s.expires_after INTO retry_policy, expires_after FROM mailgres.settings s;
END
$$;

COMMENT ON FUNCTION mailgres.use_defaults(text, interval) IS
    'Sets the defaults to those of a worker if they are still as the migration created them; returns the actual ones.';

-- p_settings: an object with the settings to change, `retry_policy` or `expires_after`; others stay.
-- A null expires_after means that emails never expire.
CREATE FUNCTION mailgres.set_defaults(p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_settings ? 'retry_policy' THEN
        PERFORM mailgres.require_policy(p_settings ->> 'retry_policy');
    END IF;
    IF (p_settings ->> 'expires_after')::interval <= '0' THEN
        PERFORM mailgres.refuse('MG074', 'emails expire after a time above zero', 'Give none if emails never expire.');
    END IF;
    UPDATE mailgres.settings s
    SET initial = false,
        retry_policy = coalesce(p_settings ->> 'retry_policy', s.retry_policy),
        expires_after = CASE WHEN p_settings ? 'expires_after' THEN (p_settings ->> 'expires_after')::interval
                             ELSE s.expires_after END;
END
$$;

COMMENT ON FUNCTION mailgres.set_defaults(jsonb) IS
    'Sets the retry policy or the expiry of emails that set none of their own.';
