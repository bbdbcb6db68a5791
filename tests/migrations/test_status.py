"""Which schema a database has, compared with the one the package needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import DatabaseUnreachable, MigrationFailed, NotMigrated
from mailgres.migrate import Status
from support.postgres import Connect, Server
from support.schema import add_revision, copy_migrations

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "postgresql://me:secret@127.0.0.1:1/mail"


def test_migration_status_no_schema(empty_database_url: str) -> None:
    assert migrate.current(empty_database_url) is None
    with pytest.raises(NotMigrated, match="has no mailgres schema") as raised:
        migrate.check(empty_database_url)
    assert raised.value.hint == "Run `mailgres migrate`."


def test_a_schema_called_mailgres_that_is_not_ours(
    empty_database_url: str, connect: Connect
) -> None:
    connect(empty_database_url).execute("CREATE SCHEMA mailgres")
    assert migrate.current(empty_database_url) is None


def test_an_empty_version_table(database_url: str, conn: psycopg.Connection) -> None:
    conn.execute("DELETE FROM mailgres.schema_version")
    assert migrate.current(database_url) is None


def test_migration_status_current(database_url: str) -> None:
    status = migrate.status(database_url)
    assert status == Status("0001_initial", "0001_initial", known=True)
    assert status.is_current
    migrate.check(database_url)


def test_migration_status_behind(database_url: str, migrations: Path, tmp_path: Path) -> None:
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "")
    status = migrate.status(database_url, directory=newer)
    assert status == Status("0001_initial", "0002_next", known=True)
    with pytest.raises(NotMigrated, match="is at revision 0001_initial, this mailgres needs 0002"):
        migrate.check(database_url, directory=newer)


def test_migration_status_ahead(database_url: str, conn: psycopg.Connection) -> None:
    conn.execute("UPDATE mailgres.schema_version SET version_num = '0999_future'")
    for act in (migrate.check, migrate.upgrade, migrate.downgrade):
        with pytest.raises(
            NotMigrated, match="0999_future, which this mailgres does not"
        ) as raised:
            act(database_url)
        assert raised.value.hint
        assert "from a checkout or its wheel file" in raised.value.hint


def test_a_revision_that_does_not_exist(database_url: str) -> None:
    with pytest.raises(MigrationFailed, match="Cannot migrate to 0000_none"):
        migrate.downgrade(database_url, "0000_none")
    with pytest.raises(MigrationFailed, match="no revision '0000_none' to start from"):
        migrate.script("0000_none")


def test_a_role_that_may_not_look(database_url: str, server: Server) -> None:
    with server.role() as stranger:
        url = f"{database_url}?options=-crole%3D{stranger}"
        with pytest.raises(MigrationFailed, match="Cannot read the version of the schema"):
            migrate.current(url)


def test_a_package_without_migrations(database_url: str, migrations: Path, tmp_path: Path) -> None:
    bare = copy_migrations(migrations, tmp_path / "migrations")
    for path in (bare / "versions").iterdir():
        path.unlink()
    with pytest.raises(MigrationFailed, match="carries no migrations"):
        migrate.status(database_url, directory=bare)


@pytest.mark.parametrize(
    "act", [migrate.upgrade, migrate.downgrade, migrate.current, migrate.check]
)
def test_migration_status_unreachable(act: object) -> None:
    assert callable(act)
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/mail: .*refused") as raised:
        act(NOWHERE)
    assert "secret" not in str(raised.value)


def test_a_script_from_a_revision(migrations: Path, tmp_path: Path) -> None:
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "CREATE TABLE public.more ();")
    text = migrate.script("0001_initial", directory=newer)
    assert "CREATE TABLE public.more" in text
    assert "CREATE TABLE public.email_queue" not in text
    assert "UPDATE mailgres.schema_version SET version_num='0002_next'" in text


def test_a_directory_with_a_percent_sign(
    empty_database_url: str, migrations: Path, tmp_path: Path
) -> None:
    odd = copy_migrations(migrations, tmp_path / "100%s")
    migrate.upgrade(empty_database_url, directory=odd)
    assert migrate.current(empty_database_url) == "0001_initial"
