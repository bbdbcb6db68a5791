-- For times in texts that are stored or shown: a cast would depend on DateStyle and TimeZone.
CREATE FUNCTION mailgres.time_text(p_time timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN isfinite(p_time) THEN to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
            ELSE p_time::text END;

COMMENT ON FUNCTION mailgres.time_text(timestamptz) IS
    'A time as text, in UTC, whatever the settings of the session.';
