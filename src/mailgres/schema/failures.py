"""The errors of PostgreSQL in a migration, in one line each, and what to do."""

from __future__ import annotations

import psycopg

from mailgres.database import first_line
from mailgres.errors import MigrationFailed

_HINTS: dict[type[psycopg.Error], str] = {
    psycopg.errors.LockNotAvailable: (
        "Another migration or a long transaction holds a lock (pg_stat_activity shows it)."
        " Nothing was changed: run `mailgres migrate` again when it is over."
    ),
    psycopg.errors.InsufficientPrivilege: (
        "Nothing was changed. Migrate as the owner of the database, or have its administrator"
        " run what `mailgres migrate --sql` prints."
    ),
    psycopg.errors.DuplicateTable: (
        "Nothing was changed. mailgres needs this name in schema public: rename your table"
        " (ALTER TABLE … RENAME TO …) and run `mailgres migrate` again. If it belongs to a queue of"
        " your own, read docs/moving-in.md first: `mailgres doctor --foreign` explains that queue."
    ),
    psycopg.errors.DependentObjectsStillExist: (
        "Nothing was changed. Save the definition of your object, drop it, run `mailgres migrate`"
        " again, and create it again."
    ),
    psycopg.errors.DuplicateFunction: (
        "Nothing was changed. mailgres needs this name in schema public: rename your function"
        " (ALTER FUNCTION … RENAME TO …) and run `mailgres migrate` again."
    ),
}


def failure(error: Exception, where: str) -> MigrationFailed:
    """Return an error with one line on what failed, and one on what to do."""
    cause = getattr(error, "orig", None) or error
    hint = next((text for kind, text in _HINTS.items() if isinstance(cause, kind)), None)
    if isinstance(cause, psycopg.errors.ObjectNotInPrerequisiteState):
        hint = cause.diag.message_hint  # of before.sql, which knows best
    detail = cause.diag.message_detail if isinstance(cause, psycopg.Error) else None
    # The detail names the conflicting object.
    more = f" ({detail.splitlines()[0]})" if detail else ""
    return MigrationFailed(f"{where}: {first_line(cause)}{more}", hint)


def location(name: str, text: str, error: psycopg.Error) -> str:
    """Return the place in a frozen file that the server reports."""
    position = error.diag.statement_position
    if not position:
        return name
    return f"{name}, line {text.count(chr(10), 0, int(position)) + 1}"
