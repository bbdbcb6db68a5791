-- Where the queue lives: in which database, so that a copy sends nothing, and on which server, so
-- that a restart or a failover is noticed.
--
-- A copy by pg_dump, by CREATE DATABASE … TEMPLATE or by logical replication writes new rows, or is
-- another database of the server: home_mark then has another xmin, or the database another oid.
-- Both stay the same where the files do: after a restart, a failover to a standby, a restore of a
-- base backup, and pg_upgrade. A copy of the files looks like the original: it is
-- quarantined by hand.

CREATE TABLE mailgres.home (
    only_row           boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    database           uuid,
    quarantined_since  timestamptz,
    quarantine_reason  text CHECK (length(quarantine_reason) <= 500),
    server             uuid,
    server_since       timestamptz NOT NULL DEFAULT '-infinity',
    CHECK ((quarantined_since IS NULL) = (quarantine_reason IS NULL))
);

COMMENT ON TABLE mailgres.home IS 'Where this queue lives, and whether it is quarantined: one row.';
COMMENT ON COLUMN mailgres.home.database IS
    'A digest of the database in which the queue may send; null: in any, for templates of test databases.';
COMMENT ON COLUMN mailgres.home.quarantined_since IS 'Since when nothing is sent, by hand; null: it is not quarantined by hand.';
COMMENT ON COLUMN mailgres.home.server IS
    'A digest of the start, the timeline and the last crash of the server, as reap() saw it last.';
COMMENT ON COLUMN mailgres.home.server_since IS 'When reap() first saw the server so.';

CREATE TABLE mailgres.home_mark (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);

COMMENT ON TABLE mailgres.home_mark IS
    'One row that nothing changes: its xmin is another one in a copy of this database.';

CREATE FUNCTION mailgres.is_quarantined() RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT h.quarantined_since IS NOT NULL
            OR h.database IS NOT NULL AND h.database IS DISTINCT FROM mailgres.current_home()
        FROM mailgres.home h), true);
END
$$;

COMMENT ON FUNCTION mailgres.is_quarantined() IS
    'Whether nothing is sent: by hand, or because this database is a copy. Providers that only capture are used.';
