"""After a restore, and after a table was renamed to make room, the doctor finds no fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from guest import archives
from mailgres import migrate
from mailgres.doctor import examine, restoring_sql
from mailgres.errors import MigrationFailed
from mailgres.settings import Settings
from support.postgres import Server, open_server

SCHEMA = ("schema-version", "schema-drift", "missing-indexes", "durability", "publications")
SAFETY = ("row-security", "grants", "privileges")


def faults(url: str) -> list[str]:
    """Return what the doctor has to say about the schema."""
    found = examine(Settings(database_url=url), offline=True, only=(*SCHEMA, *SAFETY))
    return [f"{one.check}: {one.message}" for one in found if one.severity != "ok"]


@pytest.fixture(scope="module")
def newest() -> Iterator[Server]:
    with archives.newest_server() as url, open_server(url) as server:
        yield server


def test_a_restored_schema_is_no_drift(server: Server, database_url: str) -> None:
    """The dump of a restored database is the same, too."""
    major = archives.server_major(database_url)
    with server.database() as first, server.database() as second:
        archives.restore_plain(archives.dump(database_url, major), first, major)
        assert faults(first) == []
        archives.restore_plain(archives.dump(first, major), second, major)
        assert faults(second) == []
        assert restoring_sql(Settings(database_url=second)) == "-- Nothing differs.\n"


def test_a_schema_restored_into_a_newer_postgresql_is_no_drift(
    database_url: str, newest: Server
) -> None:
    major = archives.majors()[-1]
    with newest.database() as first, newest.database() as second:
        archives.restore_plain(archives.dump(database_url, major), first, major)
        assert faults(first) == []
        archives.restore_plain(archives.dump(first, major), second, major)
        assert faults(second) == []


OLD = """
    CREATE TABLE email_queue (id uuid PRIMARY KEY, idempotency_key text UNIQUE, status text);
    CREATE TABLE email_logs (id bigserial PRIMARY KEY, queue_id uuid);
    CREATE TABLE email_templates (template_type text PRIMARY KEY);
    CREATE TABLE email_suppressions (recipient_email text PRIMARY KEY)
"""
RENAME = """
    ALTER TABLE email_queue RENAME TO old_queue;
    ALTER TABLE email_logs RENAME TO old_logs;
    ALTER TABLE email_templates RENAME TO old_templates;
    ALTER TABLE email_suppressions RENAME TO old_suppressions
"""


def test_tables_renamed_to_make_room_leave_no_drift(
    server: Server, empty_database_url: str, migrations: Path
) -> None:
    """`mailgres migrate` advises it; the old tables' keys keep the names that ours would have."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(OLD)
        with pytest.raises(MigrationFailed) as refused, server.one_at_a_time():
            migrate.upgrade(empty_database_url, directory=migrations)
        assert "RENAME TO" in (refused.value.hint or "")
        connection.execute(RENAME)
    with server.one_at_a_time():
        migrate.upgrade(empty_database_url, directory=migrations)
    assert faults(empty_database_url) == []
    assert restoring_sql(Settings(database_url=empty_database_url)) == "-- Nothing differs.\n"


def test_a_key_that_is_really_missing_is_found(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE mailgres.workers DROP CONSTRAINT workers_pkey")
        connection.execute("ALTER TABLE mailgres.sleepers ADD CONSTRAINT extra UNIQUE (worker)")
    assert "schema-drift: constraint mailgres.workers.workers_pkey is missing" in faults(
        database_url
    )


def test_drift_ignores_only_column_names_that_postgresql_generates(
    conn: psycopg.Connection,
) -> None:
    def normal(query: str) -> str:
        row = conn.execute("SELECT mailgres.normalize_query(%s)", [query]).fetchone()
        assert row
        return str(row[0])

    assert normal("SELECT 'a'::text AS text") == normal("SELECT 'a'::text")
    given = "SELECT NULL::timestamp with time zone AS timestamptz"
    assert normal(given) == normal("SELECT NULL::timestamp with time zone")
    assert normal("SELECT 'a'::text AS other") != normal("SELECT 'a'::text")
    assert normal("SELECT 'a'::text AS uuid") != normal("SELECT 'a'::text")
