"""A revision that makes an index concurrently can be interrupted at any point, and is completed."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import MigrationFailed
from support.postgres import Connect, dump, run_script
from support.schema import HEAD, NEXT, add_revision, copy_migrations
from worker.harness import until

UP = """\
-- not in a transaction
-- locks: SHARE UPDATE EXCLUSIVE on public.email_queue
CREATE INDEX CONCURRENTLY IF NOT EXISTS more_idx ON public.email_queue (user_id);
CREATE INDEX CONCURRENTLY IF NOT EXISTS more_too_idx ON public.email_queue (user_id, id);
"""
DOWN = """\
-- not in a transaction
DROP INDEX CONCURRENTLY IF EXISTS public.more_idx;
DROP INDEX CONCURRENTLY IF EXISTS public.more_too_idx;
"""
INDEXES = """
    SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relname IN ('more_idx', 'more_too_idx') ORDER BY 1
"""
MIGRATIONS = """
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'mailgres migrate' AND datname = current_database()
"""
MIGRATION = f"{MIGRATIONS} AND query LIKE 'CREATE INDEX CONCURRENTLY%'"


@pytest.fixture
def newer(migrations: Path, tmp_path: Path) -> Path:
    copy = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(copy, UP, DOWN)
    return copy


def test_a_concurrent_revision_makes_its_indexes_and_a_downgrade_drops_them(
    database_url: str, conn: psycopg.Connection, newer: Path
) -> None:
    before = dump(database_url)
    assert migrate.upgrade(database_url, directory=newer).after == NEXT
    assert conn.execute(INDEXES).fetchall() == [("more_idx", True), ("more_too_idx", True)]
    assert migrate.downgrade(database_url, HEAD, directory=newer).after == HEAD
    assert dump(database_url) == before


def test_a_killed_concurrent_revision_is_completed_by_the_next_migration(
    database_url: str, conn: psycopg.Connection, connect: Connect, newer: Path
) -> None:
    """The index that it leaves behind is invalid; a writer that does not end keeps it so."""
    writer = connect(autocommit=False)
    writer.execute("UPDATE email_queue SET priority = 1")
    failures: list[MigrationFailed] = []

    def run() -> None:
        try:
            migrate.upgrade(database_url, directory=newer)
        except MigrationFailed as error:
            failures.append(error)

    migration = threading.Thread(target=run)
    migration.start()
    until(lambda: conn.execute(INDEXES).fetchall() == [("more_idx", False)], "the index is begun")
    (pid,) = conn.execute(MIGRATION).fetchone() or (0,)
    conn.execute("SELECT pg_terminate_backend(%s)", [pid])
    migration.join()
    writer.rollback()
    assert len(failures) == 1
    assert migrate.current(database_url) == HEAD
    assert conn.execute(INDEXES).fetchall() == [("more_idx", False)]
    migrate.upgrade(database_url, directory=newer)
    assert conn.execute(INDEXES).fetchall() == [("more_idx", True), ("more_too_idx", True)]


def test_a_second_migration_waits_while_the_first_makes_an_index(
    database_url: str, conn: psycopg.Connection, connect: Connect, newer: Path
) -> None:
    """It must neither drop the unfinished index nor be waited for by it."""
    writer = connect(autocommit=False)
    writer.execute("UPDATE email_queue SET priority = 1")
    results: list[object] = []

    def run() -> None:
        try:
            results.append(migrate.upgrade(database_url, directory=newer).after)
        except MigrationFailed as error:
            results.append(error)

    both = [threading.Thread(target=run) for _ in range(2)]
    both[0].start()
    until(lambda: conn.execute(INDEXES).fetchall() == [("more_idx", False)], "the index is begun")
    both[1].start()
    until(lambda: conn.execute(MIGRATIONS).rowcount == 2, "the second waits")
    printed = migrate.script(directory=newer)
    with pytest.raises(AssertionError, match="another migration of this database is running"):
        run_script(database_url, printed, "-v", "ON_ERROR_STOP=1")
    writer.rollback()
    for each in both:
        each.join()
    assert results == [NEXT, NEXT]
    assert conn.execute(INDEXES).fetchall() == [("more_idx", True), ("more_too_idx", True)]


def test_a_concurrent_revision_refuses_statements_that_cannot_be_run_twice(
    database_url: str, conn: psycopg.Connection, migrations: Path, tmp_path: Path
) -> None:
    copy = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(
        copy, "-- not in a transaction\nCREATE INDEX more_idx ON public.email_queue (id);\n"
    )
    with pytest.raises(MigrationFailed, match="cannot be run twice"):
        migrate.upgrade(database_url, directory=copy)
    assert conn.execute(INDEXES).fetchall() == []


def test_the_printed_script_makes_concurrent_indexes_outside_of_its_transaction(
    database_url: str, newer: Path
) -> None:
    printed = migrate.script(directory=newer)
    run_script(database_url, printed, "-v", "ON_ERROR_STOP=1")
    assert migrate.current(database_url) == NEXT
    assert f"revision {NEXT} is there already" in run_script(database_url, printed)


@pytest.mark.parametrize("name", ["0001_initial.up.sql", f"{NEXT}.up.sql"])
def test_a_revision_file_that_was_changed_is_refused(
    empty_database_url: str, newer: Path, name: str
) -> None:
    with (newer / "frozen" / name).open("a") as file:
        file.write("-- edited\n")
    before = dump(empty_database_url)
    with pytest.raises(MigrationFailed, match=f"{name} was changed") as raised:
        migrate.upgrade(empty_database_url, directory=newer)
    assert raised.value.hint
    assert "Reinstall mailgres" in raised.value.hint
    if name.startswith("0001"):
        assert dump(empty_database_url) == before
