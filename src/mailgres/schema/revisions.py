"""What happens around and in the revisions of a migration; `migrations/env.py` calls it."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from alembic import op

from mailgres.errors import MigrationFailed
from mailgres.schema import alone, objects
from mailgres.schema.failures import failure, location

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

    from mailgres.schema.release import Release
    from mailgres.schema.sources import Sources

_ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_TRY_LOCK = "SELECT pg_catalog.pg_try_advisory_xact_lock(7881696737188013427)"
_KEEP_LOCK = "SELECT pg_catalog.pg_advisory_lock(7881696737188013427)"
_RELEASE_LOCK = "SELECT pg_catalog.pg_advisory_unlock(7881696737188013427)"
_RELOAD = "NOTIFY pgrst, 'reload schema'"
"""PostgREST caches the schema; without this new functions return 404 until it restarts."""
OTHER_MIGRATION_SECONDS = 60.0
"""How long a migration waits for another one."""


def start_transaction(context: MigrationContext) -> None:
    """Begin a migration: take the lock, set what it must not depend on, refuse a foreign schema.

    The lock is tried and not waited for: a statement that waits has a snapshot, and a concurrent
    index of the migration that has the lock would wait for it in turn.
    """
    cursor = psycopg.Cursor(driver(context))
    cursor.execute(_ISOLATION)
    until = time.monotonic() + OTHER_MIGRATION_SECONDS
    while cursor.execute(_TRY_LOCK).fetchone() != (True,):
        if time.monotonic() >= until:
            raise MigrationFailed(
                "Another migration of this database has been running for a minute",
                "Nothing was changed: run `mailgres migrate` again when it is over"
                " (pg_stat_activity shows it).",
            )
        time.sleep(0.1)
    _run_file(context, "before.sql")


def before_revisions(context: MigrationContext, earlier: Release | None) -> None:
    """Make the objects of the release to return to, before the columns that others use are gone."""
    if earlier is not None:
        objects.return_to(driver(context), earlier)


def after_revisions(
    context: MigrationContext, sources: Sources, earlier: Release | None, *, changed: bool
) -> int:
    """Replace the objects that differ; return how many were."""
    connection = driver(context)
    replaced = 0
    if not context.get_current_heads():
        _run_file(context, "gone.sql")
    elif earlier is not None:
        objects.return_to(connection, earlier)
        objects.record_return(connection, earlier)
    else:
        replaced = objects.replace(connection, sources)
    if replaced or changed:
        psycopg.Cursor(connection).execute(_RELOAD)
    return replaced


def run_frozen(name: str) -> None:
    """Run a file of `migrations/frozen`; for the revisions in `migrations/versions`."""
    context = op.get_context()
    text = _read(context, "frozen", name)
    _refuse_changed(name, text, _read(context, "frozen", "SHA256SUMS"))
    try:
        if text.startswith(alone.FIRST_LINE):
            _run_alone(context, name, text)
        else:
            run_sql(context, text)
            objects.remake_row_functions(driver(context))
    except psycopg.Error as error:
        raise failure(error, location(name, text, error)) from error


def _refuse_changed(name: str, text: str, sums: str) -> None:
    """Refuse a file that is not as it was released: databases would differ from each other."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    if f"{digest}  {name}" not in sums.splitlines():
        raise MigrationFailed(
            f"{name} was changed: its checksum is not that of SHA256SUMS",
            "Nothing was changed. Reinstall mailgres; in a checkout, run `make freeze`.",
        )


def _run_alone(context: MigrationContext, name: str, text: str) -> None:
    """Run statements that cannot be part of a transaction, such as CREATE INDEX CONCURRENTLY.

    If this is interrupted, the next migration runs them all again.
    """
    connection = driver(context)
    found = alone.statements(name, text)
    if _is_unused(context):
        _run_each(connection, found, together=True)
        return
    _run_file(context, "before_commit.sql")
    connection.execute(_KEEP_LOCK)  # beyond the end of the transaction
    try:
        with context.autocommit_block():
            _run_each(connection, found, together=False)
        start_transaction(context)
    finally:
        if not connection.broken:
            connection.execute(_RELEASE_LOCK)


def _run_each(
    connection: psycopg.Connection, found: list[tuple[str, str | None]], *, together: bool
) -> None:
    """Run statements one by one; an index that an interrupted migration left is dropped first."""

    def run(statement: str) -> None:
        connection.execute((alone.together(statement) if together else statement).encode())

    for statement, index in found:
        if index and connection.execute(alone.QUERIES["is_invalid"], {"index": index}).rowcount:
            run(alone.QUERIES["drop"].format(index=index))
        run(statement)


def _is_unused(context: MigrationContext) -> bool:
    """Return whether this is the first migration of the database, or removes mailgres."""
    if context.opts.get("destination_rev") == "base":
        return True
    return not driver(context).execute(alone.QUERIES["is_completed"]).rowcount


def run_sql(context: MigrationContext, text: str) -> None:
    """Run statements unchanged.

    `op.execute` would take `:name` in a comment for a parameter, and SQLAlchemy's driver-level
    execute would take a `%`; the driver itself, called without parameters, changes nothing.
    """
    # A cursor that reads text may send several statements in one message; a binary one may not.
    psycopg.Cursor(driver(context)).execute(text.encode())


def driver(context: MigrationContext) -> psycopg.Connection:
    """Return psycopg's connection of a migration."""
    if context.connection is None:
        raise RuntimeError("a migration needs a connection")
    found = context.connection.connection.driver_connection
    if not isinstance(found, psycopg.Connection):
        raise TypeError("mailgres migrates through psycopg only")
    return found


def _run_file(context: MigrationContext, name: str) -> None:
    run_sql(context, _read(context, name))


def _read(context: MigrationContext, *parts: str) -> str:
    if context.script is None:
        raise RuntimeError("a revision runs inside alembic's environment only")
    return Path(context.script.dir, *parts).read_text(encoding="utf-8")
