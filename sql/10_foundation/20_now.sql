-- The one source of time. Everything below asks mailgres.now(), so a test can
-- travel in time by replacing this function in its own database. In production
-- there is no setting by which a caller could lie about the time.

CREATE FUNCTION mailgres.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.now();

COMMENT ON FUNCTION mailgres.now() IS
    'The time of the current transaction; tests replace this function to travel in time.';
