"""Time travel, so that tests of retries, schedules and expiries do not sleep.

All of mailgres takes the time from the SQL function `mailgres.now()`. `travel` and `freeze` replace
it, in one database and for all its connections, with one that reads a table. They run in the
caller's transaction: on a connection that is not in autocommit mode, commit to let others see it.

Only the owner of the schema can do this, and only tests should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import queries

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Any

    import psycopg

__all__ = ["freeze", "reset", "travel"]


def travel(connection: psycopg.Connection[Any], by: timedelta) -> None:
    """Move the clock of mailgres by `by`, in addition to earlier moves."""
    _run(connection, "install")
    _run(connection, "travel", seconds=by.total_seconds())


def freeze(connection: psycopg.Connection[Any], at: datetime | None = None) -> None:
    """Stop the clock of mailgres at `at`, by default now; only `travel` then moves it."""
    _run(connection, "install")
    _run(connection, "freeze", at=at)


def reset(connection: psycopg.Connection[Any]) -> None:
    """Restore the real time, and remove everything that these functions made."""
    _run(connection, "reset")


def _run(connection: psycopg.Connection[Any], name: str, **parameters: object) -> None:
    connection.execute(queries.load("testing/clock.sql")[name], parameters or None)
