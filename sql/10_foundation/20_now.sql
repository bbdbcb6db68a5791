-- The only source of time. All other functions call mailgres.now(), so a test can change
-- the time by replacing this function in its own database. In production no setting lets
-- a caller change the time.

CREATE FUNCTION mailgres.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.now();

COMMENT ON FUNCTION mailgres.now() IS
    'The time of the current transaction; tests replace this function to change the time.';
