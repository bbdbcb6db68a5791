"""Which schema a database has, compared with the one the package needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import DatabaseUnreachable, MigrationFailed, NotMigrated
from mailgres.schema import release
from support.postgres import Connect, Server
from support.schema import HEAD, NEXT, add_revision, copy_migrations

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "postgresql://me:secret@127.0.0.1:1/mail"


def test_the_status_without_a_schema_names_migrate(empty_database_url: str) -> None:
    assert migrate.current(empty_database_url) is None
    with pytest.raises(NotMigrated, match="has no mailgres schema") as raised:
        migrate.check(empty_database_url)
    assert raised.value.hint == "Run `mailgres migrate`."


def test_an_empty_schema_named_mailgres_has_no_version(
    empty_database_url: str, connect: Connect
) -> None:
    connect(empty_database_url).execute("CREATE SCHEMA mailgres")
    assert migrate.current(empty_database_url) is None


def test_an_empty_version_table_counts_as_no_schema(
    database_url: str, conn: psycopg.Connection
) -> None:
    conn.execute("DELETE FROM mailgres.schema_version")
    assert migrate.current(database_url) is None


def test_the_status_of_a_current_schema_is_current(database_url: str) -> None:
    status = migrate.status(database_url)
    assert (status.current, status.head, status.known) == (HEAD, HEAD, True)
    assert status.is_current
    migrate.check(database_url)


def test_the_status_of_an_older_schema_is_behind(
    database_url: str, migrations: Path, tmp_path: Path
) -> None:
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "")
    status = migrate.status(database_url, directory=newer)
    assert (status.current, status.head, status.known) == (HEAD, NEXT, True)
    with pytest.raises(NotMigrated, match=f"is at revision {HEAD}, this mailgres needs {NEXT}"):
        migrate.check(database_url, directory=newer)


def newer_schema(conn: psycopg.Connection, *, works_since: str, revision: str) -> None:
    """Let the schema be that of a newer version."""
    conn.execute("UPDATE mailgres.schema_version SET version_num = %s", [revision])
    conn.execute(
        "UPDATE mailgres.schema_releases"
        " SET version = '99.1.0', works_since = %s, digest = 'other', revision = %s",
        [works_since, revision],
    )


@pytest.mark.parametrize("revision", [HEAD, "0999_future"])
def test_a_newer_schema_that_needs_newer_workers_is_refused(
    database_url: str, conn: psycopg.Connection, revision: str
) -> None:
    newer_schema(conn, works_since="99.0.0", revision=revision)
    for act in (migrate.check, migrate.upgrade):
        with pytest.raises(
            NotMigrated, match=r"by mailgres 99\.1\.0, which this mailgres"
        ) as raised:
            act(database_url)
        assert raised.value.hint
        assert "from a checkout or its wheel file" in raised.value.hint


@pytest.mark.parametrize("revision", [HEAD, "0999_future"])
def test_a_newer_schema_works_with_the_workers_that_it_names(
    database_url: str, conn: psycopg.Connection, revision: str
) -> None:
    newer_schema(conn, works_since="0.1.0a1", revision=revision)
    migrate.check(database_url)
    with pytest.raises(NotMigrated, match=r"by mailgres 99\.1\.0"):
        migrate.upgrade(database_url)


def test_an_unknown_revision_is_not_downgraded(database_url: str, conn: psycopg.Connection) -> None:
    newer_schema(conn, works_since="0.1.0a1", revision="0999_future")
    with pytest.raises(NotMigrated, match=r"which this mailgres .* does not know"):
        migrate.downgrade(database_url)


def test_an_older_schema_is_refused_and_the_command_is_named(
    database_url: str, conn: psycopg.Connection
) -> None:
    """A function of this version that is not there yet would fail at the first email."""
    conn.execute("UPDATE mailgres.schema_releases SET version = '0.0.1', digest = 'other'")
    with pytest.raises(NotMigrated, match=r"has the functions of mailgres 0\.0\.1") as raised:
        migrate.check(database_url)
    assert raised.value.hint == "Run `mailgres migrate`."
    migrate.upgrade(database_url)
    migrate.check(database_url)


def test_versions_are_ordered() -> None:
    ordered = ["0.1.0.dev1", "0.1.0a1", "0.1.0a2.dev0", "0.1.0a2", "0.1.0b1", "0.1.0rc1", "0.1.0"]
    ordered += ["0.1.1.dev0", "0.1.1", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(set(ordered), key=release.order) == ordered
    assert release.order("unknown") < release.order("0.0.1")


def test_a_revision_that_does_not_exist_is_refused(database_url: str) -> None:
    with pytest.raises(MigrationFailed, match="never had the version or revision '0000_none'"):
        migrate.downgrade(database_url, "0000_none")
    with pytest.raises(MigrationFailed, match="no revision '0000_none' to start from"):
        migrate.script("0000_none")


def test_a_role_without_rights_cannot_read_the_schema_version(
    database_url: str, server: Server
) -> None:
    with server.role() as stranger:
        url = f"{database_url}?options=-crole%3D{stranger}"
        with pytest.raises(MigrationFailed, match="Cannot read the version of the schema"):
            migrate.current(url)


def test_a_package_without_migrations_is_a_clear_error(
    database_url: str, migrations: Path, tmp_path: Path
) -> None:
    bare = copy_migrations(migrations, tmp_path / "migrations")
    for path in (bare / "frozen").glob("*.up.sql"):
        path.unlink()
    with pytest.raises(MigrationFailed, match="carries no migrations"):
        migrate.status(database_url, directory=bare)


@pytest.mark.parametrize(
    "act", [migrate.upgrade, migrate.downgrade, migrate.current, migrate.check]
)
def test_the_status_of_an_unreachable_database_hides_the_password(act: object) -> None:
    assert callable(act)
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/mail: .*refused") as raised:
        act(NOWHERE)
    assert "secret" not in str(raised.value)


def test_a_script_can_start_from_a_revision(migrations: Path, tmp_path: Path) -> None:
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "CREATE TABLE public.more ();")
    text = migrate.script(HEAD, directory=newer)
    assert "CREATE TABLE public.more" in text
    assert "CREATE TABLE public.email_queue" not in text
    assert f"INSERT INTO mailgres.schema_version (version_num) VALUES ('{NEXT}')" in text


def test_migrations_run_from_a_directory_with_a_percent_sign(
    empty_database_url: str, migrations: Path, tmp_path: Path
) -> None:
    odd = copy_migrations(migrations, tmp_path / "100%s")
    migrate.upgrade(empty_database_url, directory=odd)
    assert migrate.current(empty_database_url) == HEAD
