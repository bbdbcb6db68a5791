"""Translate a driver's error into ours, by SQLSTATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.errors import (
    DatabaseUnreachable,
    MailgresError,
    MalformedRequest,
    NotMigrated,
    NoTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_POSTGRES: dict[str, type[MailgresError]] = {
    "08": DatabaseUnreachable,  # connection exceptions
    "22": MalformedRequest,  # data exceptions
    "25P01": NoTransaction,
    "3F000": NotMigrated,  # no such schema
    "42883": NotMigrated,  # no such function
    "42P01": NotMigrated,  # no such table
    "54": MalformedRequest,  # limits, such as the nesting of JSON
    "57P01": DatabaseUnreachable,  # the server is stopping
    "57P02": DatabaseUnreachable,  # the server crashed
    "57P03": DatabaseUnreachable,  # the server is starting
}
"""PostgreSQL's own SQLSTATEs and classes of them.

Its messages are not repeated: they quote values, which may be personal data.
"""


def from_database(error: BaseException) -> MailgresError | None:
    """Return our error for one that a driver raised in a call of mailgres; None if it has none.

    It takes the errors of psycopg, psycopg2, asyncpg and, wrapped around these, SQLAlchemy. Errors
    without a counterpart here (a deadlock, a timeout, a missing privilege) are best handled as the
    driver's own.
    """
    cause = driver_error(error)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state is None:
        return DatabaseUnreachable() if _lost(error, cause) else None
    if state.startswith("MG"):
        cls = next((c for c in with_sqlstate() if c.sqlstate == state), MailgresError)
        return cls(*_texts(cause))
    other = _OF_POSTGRES.get(state) or _OF_POSTGRES.get(state[:2])
    return other() if other else None


def driver_error(error: BaseException) -> BaseException:
    """Return what the driver raised, without SQLAlchemy's wrapper.

    SQLAlchemy's text lists the parameters, so it must not appear in our tracebacks.
    """
    return getattr(error, "orig", None) or error


def _lost(error: BaseException, cause: BaseException) -> bool:
    """Return whether an error without a SQLSTATE is about the connection."""
    if getattr(error, "connection_invalidated", False) or isinstance(cause, OSError):
        return True
    return any(cls.__name__ == "OperationalError" for cls in type(cause).__mro__)


def _texts(cause: BaseException) -> tuple[str | None, str | None]:
    """Return message and hint, which psycopg keeps in `diag` and asyncpg in the error itself."""
    if diag := getattr(cause, "diag", None):
        return diag.message_primary, diag.message_hint
    raised = cause.__cause__
    return getattr(raised, "message", None), getattr(raised, "hint", None)


def with_sqlstate(cls: type[MailgresError] = MailgresError) -> Iterator[type[MailgresError]]:
    """Yield all errors that the database raises itself."""
    for child in cls.__subclasses__():
        if child.sqlstate:
            yield child
        yield from with_sqlstate(child)
