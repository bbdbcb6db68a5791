-- What holds for emails that do not say otherwise. A worker may be given other defaults
-- than the queue has: the first one sets them, after that only a command does.

CREATE FUNCTION mailgres.known_policy(p_name text) RETURNS void
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

COMMENT ON FUNCTION mailgres.known_policy(text) IS 'Refuses an unknown name.';

CREATE FUNCTION mailgres.use_defaults(
    p_retry_policy text, p_expires_after interval,
    OUT was_initial boolean, OUT retry_policy text, OUT expires_after interval
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.known_policy(p_retry_policy);
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
    'A worker''s defaults: set if they are as the migration made them; returns what holds.';

-- p_settings: an object with what is to change, `retry_policy` or `expires_after`; what is
-- not named stays, and a null lets emails never expire.
CREATE FUNCTION mailgres.set_defaults(p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_settings ? 'retry_policy' THEN
        PERFORM mailgres.known_policy(p_settings ->> 'retry_policy');
    END IF;
    IF (p_settings ->> 'expires_after')::interval <= '0' THEN
        PERFORM mailgres.refuse('MG074', 'emails expire after a time above zero', 'Give none to keep them for ever.');
    END IF;
    UPDATE mailgres.settings s
    SET initial = false,
        retry_policy = coalesce(p_settings ->> 'retry_policy', s.retry_policy),
        expires_after = CASE WHEN p_settings ? 'expires_after' THEN (p_settings ->> 'expires_after')::interval
                             ELSE s.expires_after END;
END
$$;

COMMENT ON FUNCTION mailgres.set_defaults(jsonb) IS
    'Sets the retry policy or the expiry of emails that do not say otherwise.';
