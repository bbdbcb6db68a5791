-- install --
-- The table is the clock of the whole database, so that every connection sees the same time.
-- A standard SQL body, so that it works with any search_path. Granted to all, because now() is
-- also a column default, and callers with few privileges use it.
DO $$
BEGIN
    IF to_regclass('mailgres.time_travel') IS NULL THEN
        CREATE TABLE mailgres.time_travel (
            only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
            frozen_at  timestamptz,
            by         interval NOT NULL DEFAULT '0'
        );
        GRANT SELECT ON mailgres.time_travel TO PUBLIC;
        INSERT INTO mailgres.time_travel DEFAULT VALUES;
        CREATE OR REPLACE FUNCTION mailgres.now() RETURNS timestamptz
            LANGUAGE sql STABLE PARALLEL SAFE
        RETURN (SELECT coalesce(t.frozen_at, pg_catalog.now()) + t.by FROM mailgres.time_travel t);
    END IF;
END
$$

-- travel --
UPDATE mailgres.time_travel SET by = by + make_interval(secs => %(seconds)s)

-- freeze --
UPDATE mailgres.time_travel SET frozen_at = coalesce(%(at)s, pg_catalog.now()), by = '0'

-- reset --
DO $$
BEGIN
    CREATE OR REPLACE FUNCTION mailgres.now() RETURNS timestamptz
        LANGUAGE sql STABLE PARALLEL SAFE
    RETURN pg_catalog.now();
    DROP TABLE IF EXISTS mailgres.time_travel;
END
$$

