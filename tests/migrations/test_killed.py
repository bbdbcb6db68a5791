"""A migration that is killed with SIGKILL, at any statement, leaves nothing half-done."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate, resources
from mailgres.schema.sources import Sources
from support import forked
from support.deadly_line import DeadlyLine
from support.postgres import Connect, Server, dump
from support.program import PROGRAM
from support.schema import HEAD, add_revision, copy_migrations, objects
from worker.harness import until

COLUMN, INDEX = f"{int(HEAD[:4]) + 1:04}_column", f"{int(HEAD[:4]) + 2:04}_index"
ADD_COLUMN = "ALTER TABLE public.email_queue ADD COLUMN more text;\n"
DROP_COLUMN = "ALTER TABLE public.email_queue DROP COLUMN more;\n"
ADD_INDEX = """\
-- not in a transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS email_queue_more_idx ON public.email_queue (more);
"""
DROP_INDEX = """\
-- not in a transaction
DROP INDEX CONCURRENTLY IF EXISTS public.email_queue_more_idx;
"""
VIEW = "CREATE VIEW public.email_more AS SELECT id, more FROM public.email_queue;\n"

# A transaction that was rolled back leaves all of these as they were.
CATALOG = """
    SELECT 'class', oid, xmin::text FROM pg_class WHERE relnamespace = ANY (%(ours)s)
    UNION ALL SELECT 'column', attrelid, a.xmin::text FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
              WHERE relnamespace = ANY (%(ours)s)
    UNION ALL SELECT 'function', oid, xmin::text FROM pg_proc WHERE pronamespace = ANY (%(ours)s)
    UNION ALL SELECT 'type', oid, xmin::text FROM pg_type WHERE typnamespace = ANY (%(ours)s)
    UNION ALL SELECT 'constraint', oid, xmin::text FROM pg_constraint WHERE connamespace = ANY (%(ours)s)
    UNION ALL SELECT 'trigger', oid, xmin::text FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT 'view', ev_class, xmin::text FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT 'index', indexrelid, indisvalid::text FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT 'schema', oid, nspname::text FROM pg_namespace
    ORDER BY 1, 2, 3
"""  # noqa: E501
SCHEMAS = "SELECT array_agg(oid) FROM pg_namespace WHERE nspname IN ('public', 'mailgres')"
MIGRATIONS = """
    SELECT FROM pg_stat_activity
    WHERE application_name = 'mailgres migrate' AND datname = current_database()
"""
WHOLE = """
    SELECT (SELECT version_num FROM mailgres.schema_version),
           EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'email_queue'::regclass AND attname = 'more'),
           to_regclass('public.email_more') IS NOT NULL
"""  # noqa: E501
"""The revision, and whether its column and the view that comes after all revisions are there."""
INVALID = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def newer(tmp_path: Path) -> tuple[Path, Path]:
    """Migrations with two revisions more, and `sql/` with a view more."""
    directory = copy_migrations(resources.migrations_directory(), tmp_path / "migrations")
    add_revision(directory, ADD_COLUMN, DROP_COLUMN, COLUMN)
    add_revision(directory, ADD_INDEX, DROP_INDEX, INDEX, before=COLUMN)
    shutil.copytree(resources.sql_directory(), tmp_path / "sql")
    (tmp_path / "sql" / "90_more.sql").write_text(VIEW, encoding="utf-8")
    return directory, tmp_path / "sql"


def program(directory: Path, sql: Path) -> Start:
    """What starts this migration as a process."""
    command = [sys.executable, "-m", "migrations.upgrade_program"]
    return lambda url: _start([*command, url, str(directory), str(sql)])


def mailgres_migrate(url: str) -> subprocess.Popen[str]:
    """What an operator runs."""
    return _start([str(PROGRAM), "migrate", "--database-url", url])


def _start(command: list[str]) -> subprocess.Popen[str]:
    return forked.start(
        command,
        env={"LC_ALL": forked.LOCALE, "HOME": "/nonexistent"},
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def catalog(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    """All that a migration may change, when no migration is connected any more."""
    until(lambda: connection.execute(MIGRATIONS).rowcount == 0, "the killed session has ended")
    row = connection.execute(SCHEMAS).fetchone()
    return connection.execute(CATALOG.encode(), {"ours": row[0] if row else []}).fetchall()


def kill_at_every_statement(
    connection: psycopg.Connection, url: str, start: Start, look: str
) -> list[tuple[object, ...]]:
    """Kill a migration at its first statement, another at its second, and so on, until one ends.

    Statements that only read are not counted: to be killed there is to be killed before the next,
    and that is to be killed after the one before.
    When one got further before it was killed, the next begins at its first statement again. Return
    what was seen each time that something had changed.
    """
    seen: list[tuple[object, ...]] = []
    before, statement = catalog(connection), 1
    while True:
        with DeadlyLine(url, statement) as line:
            if line.run(start) == 0:
                return seen
        statement += 1
        if (now := catalog(connection)) != before:
            before, statement = now, 1
            seen.append(connection.execute(look.encode()).fetchone() or ())


def test_an_upgrade_killed_at_any_statement_is_completed_by_the_next(
    database_url: str, connect: Connect, server: Server, template: str, newer: tuple[Path, Path]
) -> None:
    directory, sql = newer
    seen = kill_at_every_statement(connect(), database_url, program(*newer), WHOLE)
    # Revisions before a concurrent index are committed with it; the objects come last.
    steps = {(HEAD, False, False), (COLUMN, True, False), (INDEX, True, True)}
    assert set(seen) <= steps
    assert (COLUMN, True, False) in seen
    with server.database(template) as untroubled:
        migrate.upgrade(untroubled, directory=directory, sources=Sources(sql))
        assert dump(database_url) == dump(untroubled)
    assert migrate.differences(database_url, directory=directory, sources=Sources(sql)) == ([], [])


@pytest.mark.long
def test_a_first_migration_killed_at_any_statement_leaves_nothing(
    empty_database_url: str, connect: Connect, server: Server
) -> None:
    watcher = connect(empty_database_url)
    look = "SELECT version_num FROM mailgres.schema_version"
    seen = kill_at_every_statement(watcher, empty_database_url, mailgres_migrate, look)
    assert seen == [(HEAD,)]  # after the last statement, the commit
    assert objects(empty_database_url)
    with server.database() as untroubled:
        migrate.upgrade(untroubled)
        assert dump(empty_database_url) == dump(untroubled)
    assert migrate.differences(empty_database_url) == ([], [])


def test_a_migration_killed_while_it_makes_an_index_is_completed_by_the_next(
    database_url: str, conn: psycopg.Connection, connect: Connect, newer: tuple[Path, Path]
) -> None:
    """Its session lives until the server notices; the next migration waits for that."""
    directory, sql = newer
    # No column before it: the writer would have to end for that.
    add_revision(directory, "SELECT;", "SELECT;", COLUMN)
    add_revision(directory, ADD_INDEX.replace("more)", "id)"), DROP_INDEX, INDEX, before=COLUMN)
    (sql / "90_more.sql").write_text("", encoding="utf-8")
    writer = connect(autocommit=False)
    writer.execute("UPDATE email_queue SET priority = 1")
    with program(*newer)(database_url) as migration:
        until(lambda: conn.execute(INVALID).fetchone() == (1,), "the index is begun")
        migration.kill()
    with program(*newer)(database_url) as again:
        until(lambda: conn.execute(MIGRATIONS).rowcount == 2, "the second one waits")
        writer.rollback()
        _, said = again.communicate()
    assert again.returncode == 0, said
    assert conn.execute(INVALID).fetchone() == (0,)
    assert migrate.differences(database_url, directory=directory, sources=Sources(sql)) == ([], [])
