"""A migration happens once, entirely, or not at all, and harms nobody else."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import MigrationFailed
from mailgres.migrate import Change
from mailgres.schema import revisions
from support.postgres import Connect, Server, dump
from support.schema import HEAD, NEXT, add_revision, copy_migrations, objects

if TYPE_CHECKING:
    from pathlib import Path

MARK_SENT = """
    CREATE FUNCTION public.mark_email_sent(p_queue_id uuid, p_resend_id text DEFAULT NULL)
    RETURNS boolean LANGUAGE sql RETURN true
"""
UPGRADE = """
import pathlib, sys
from mailgres import migrate
print(migrate.upgrade(sys.argv[1], directory=pathlib.Path(sys.argv[2])).before)
"""
BROKEN = "CREATE TABLE public.half (id int);\n\nSELECT 1 FROM nowhere;\n"


@pytest.fixture
def changeable(migrations: Path, tmp_path: Path) -> Path:
    """A copy of the migrations that the test may change."""
    return copy_migrations(migrations, tmp_path / "migrations")


def test_a_failing_revision_leaves_nothing(empty_database_url: str, changeable: Path) -> None:
    add_revision(changeable, BROKEN)
    with pytest.raises(MigrationFailed) as raised:
        migrate.upgrade(empty_database_url, directory=changeable)
    assert raised.value.message == (f'{NEXT}.up.sql, line 3: relation "nowhere" does not exist')
    assert raised.value.hint
    assert "Nothing was changed" in raised.value.hint
    assert objects(empty_database_url) == []


def test_a_failing_revision_leaves_the_revision_before(database_url: str, changeable: Path) -> None:
    add_revision(changeable, BROKEN)
    before = dump(database_url)
    with pytest.raises(MigrationFailed):
        migrate.upgrade(database_url, directory=changeable)
    assert dump(database_url) == before
    assert migrate.current(database_url) == HEAD


def test_one_revision_can_be_upgraded_and_downgraded(database_url: str, changeable: Path) -> None:
    add_revision(changeable, "CREATE TABLE public.more ();", "DROP TABLE public.more;")
    before = dump(database_url)
    change = migrate.upgrade(database_url, directory=changeable)
    assert (change.before, change.after) == (HEAD, NEXT)
    assert migrate.downgrade(database_url, HEAD, directory=changeable) == Change(NEXT, HEAD)
    assert dump(database_url) == before


def test_sql_reaches_the_server_as_it_is(database_url: str, changeable: Path) -> None:
    add_revision(changeable, "-- :name\nCREATE TABLE public.t AS SELECT '100%s :x' AS \"v%\";")
    migrate.upgrade(database_url, directory=changeable)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [("100%s :x",)]


def test_a_downgrade_to_base_leaves_nothing(database_url: str, migrations: Path) -> None:
    assert migrate.downgrade(database_url, directory=migrations) == Change(HEAD, None)
    assert objects(database_url) == []


def test_a_downgrade_leaves_objects_of_others(database_url: str, migrations: Path) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE orders (id int)")
        connection.execute("CREATE FUNCTION total() RETURNS int LANGUAGE sql RETURN 1")
    migrate.downgrade(database_url, directory=migrations)
    assert objects(database_url) == ["function total()", "relation orders"]


def test_a_downgrade_stops_at_objects_that_depend_on_ours(
    database_url: str, migrations: Path
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE VIEW mine AS SELECT id FROM email_queue")
    before = dump(database_url)
    with pytest.raises(
        MigrationFailed, match=r"\(view public\.mine depends on table public\.email_queue\)"
    ):
        migrate.downgrade(database_url, directory=migrations)
    assert dump(database_url) == before


def test_many_threads_do_the_work_once(empty_database_url: str, migrations: Path) -> None:
    def upgrade(_: int) -> Change:
        return migrate.upgrade(empty_database_url, directory=migrations)

    with ThreadPoolExecutor(4) as pool:
        changes = list(pool.map(upgrade, range(4)))
    done = [change for change in changes if change.before is None or change.replaced]
    assert [(change.before, change.after) for change in done] == [(None, HEAD)]


def test_many_processes_do_the_work_once(empty_database_url: str, migrations: Path) -> None:
    command = [sys.executable, "-c", UPGRADE, empty_database_url, str(migrations)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in started)
    assert said == [HEAD, HEAD, "None"]


def test_a_migration_does_not_wait_forever_for_another(
    empty_database_url: str,
    migrations: Path,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revisions, "OTHER_MIGRATION_SECONDS", 0.2)
    other = connect(empty_database_url)
    other.execute("SELECT pg_advisory_lock(7881696737188013427)")
    with pytest.raises(MigrationFailed, match="Another migration of this database") as raised:
        migrate.upgrade(empty_database_url, directory=migrations)
    assert raised.value.hint
    assert raised.value.hint.startswith("Nothing was changed: run `mailgres migrate` again")
    assert objects(empty_database_url) == []


def test_a_migration_does_not_queue_behind_a_long_transaction(
    database_url: str, changeable: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_ATTEMPTS", 2)
    add_revision(changeable, "ALTER TABLE public.email_queue ADD COLUMN more int;")
    other = connect(autocommit=False)
    other.execute("SELECT count(*) FROM email_queue")
    with pytest.raises(MigrationFailed, match="lock timeout"):
        migrate.upgrade(database_url, directory=changeable)
    other.rollback()
    migrate.upgrade(database_url, directory=changeable)


def test_postgrest_is_notified_once(
    empty_database_url: str, migrations: Path, connect: Connect
) -> None:
    listener = connect(empty_database_url)
    listener.execute("LISTEN pgrst")
    migrate.upgrade(empty_database_url, directory=migrations)
    migrate.upgrade(empty_database_url, directory=migrations)
    notifies = [n.payload for n in listener.notifies(timeout=0.2)]
    assert notifies == ["reload schema"]


def test_the_applications_own_alembic_is_left_alone(
    empty_database_url: str, migrations: Path, connect: Connect
) -> None:
    application = connect(empty_database_url)
    application.execute("CREATE TABLE alembic_version AS SELECT 'theirs' AS version_num")
    migrate.upgrade(empty_database_url, directory=migrations)
    migrate.downgrade(empty_database_url, directory=migrations)
    assert objects(empty_database_url) == ["relation alembic_version"]
    assert application.execute("SELECT * FROM alembic_version").fetchall() == [("theirs",)]


def test_the_version_table_is_private(
    empty_database_url: str, migrations: Path, connect: Connect, server: Server
) -> None:
    with server.role() as generous, server.role() as stranger:
        admin = connect(empty_database_url)
        admin.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {generous}, PUBLIC")
        migrate.upgrade(empty_database_url, directory=migrations)
        for role in (generous, stranger):
            row = admin.execute(
                "SELECT has_table_privilege(%s, 'mailgres.schema_version', 'SELECT')", [role]
            ).fetchone()
            assert row == (False,)
        admin.execute(f"DROP OWNED BY {generous}")
        admin.execute("ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC")


@pytest.mark.parametrize(
    ("existing", "hint"),
    [
        ("CREATE TABLE public.email_queue (id int)", "ALTER TABLE … RENAME"),
        (MARK_SENT, "ALTER FUNCTION … RENAME"),
    ],
)
def test_a_migration_refuses_names_that_are_taken(
    empty_database_url: str, migrations: Path, connect: Connect, existing: str, hint: str
) -> None:
    connect(empty_database_url).execute(existing)
    before = dump(empty_database_url)
    with pytest.raises(MigrationFailed, match="already exists") as raised:
        migrate.upgrade(empty_database_url, directory=migrations)
    assert raised.value.hint
    assert hint in raised.value.hint
    assert dump(empty_database_url) == before


def test_a_role_without_rights_cannot_migrate(
    empty_database_url: str, migrations: Path, server: Server
) -> None:
    with server.role() as stranger:
        url = f"{empty_database_url}?options=-crole%3D{stranger}"
        with pytest.raises(MigrationFailed, match="permission denied") as raised:
            migrate.upgrade(url, directory=migrations)
    assert raised.value.hint
    assert "owner of the database" in raised.value.hint
