"""Connect to the database: any form of the URL, no password in any message."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format

from mailgres.errors import BadDatabaseUrl, DatabaseUnreachable

CONNECT_TIMEOUT = 10
"""Seconds to wait for a server, unless the URL says otherwise."""


class BinaryCursor(psycopg.Cursor[Any]):
    """Reads values in PostgreSQL's binary format, which no setting changes.

    As text, times depend on DateStyle, intervals on IntervalStyle, numbers on extra_float_digits,
    and a role or a database may set these for every session.
    """

    def __init__(self, *given: Any, **options: Any) -> None:  # noqa: ANN401 - as its base takes them
        super().__init__(*given, **options)
        self.format = Format.BINARY


class BinaryServerCursor(psycopg.ServerCursor[Any]):
    """The same, for results that are fetched in parts."""

    def __init__(self, *given: Any, **options: Any) -> None:  # noqa: ANN401 - as its base takes them
        super().__init__(*given, **options)
        self.format = Format.BINARY


_DRIVER = re.compile(r"^(postgres(?:ql)?)\+\w+://")


def conninfo(url: str | None, *, application_name: str = "mailgres") -> str:
    """Return the connection string of libpq for `url`.

    Takes `postgres://` and `postgresql://` URLs, those with SQLAlchemy's `+driver`, and libpq's
    `host=… dbname=…` strings. A timeout or application name in the URL is kept. The encoding is
    UTF-8, whatever the database or the environment set.
    """
    if not url or not url.strip():
        raise BadDatabaseUrl(
            "No database was named",
            "Set DATABASE_URL or pass --database-url; `mailgres dev` starts one here.",
        )
    try:
        given = conninfo_to_dict(_DRIVER.sub(r"\1://", url.strip()))
    except psycopg.ProgrammingError:
        # libpq quotes text that it cannot parse, and that may be the password.
        raise BadDatabaseUrl from None
    if _swallowed_password(given):
        raise BadDatabaseUrl
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "application_name": application_name,
    }
    return make_conninfo("", **{**defaults, **given, "client_encoding": "UTF8"})


def _swallowed_password(given: dict[str, Any]) -> bool:
    """Return whether an unencoded `@`, `/` or `?` moved part of the password into another field.

    Such a URL cannot work, and its fields must not be shown in an error.
    """
    fields = (given.get("host"), given.get("port"), given.get("dbname"))
    port = str(given.get("port") or "0").replace(",", "")
    return not port.isdigit() or any("@" in str(field or "") for field in fields)


def connect(
    url: str | None, *, application_name: str = "mailgres", autocommit: bool = False
) -> psycopg.Connection:
    """Connect to `url`, directly or through a transaction pooler."""
    target = conninfo(url, application_name=application_name)
    try:
        # A transaction pooler loses prepared statements between transactions.
        connection = psycopg.connect(target, autocommit=autocommit, prepare_threshold=None)
    except psycopg.OperationalError as error:
        reason = first_line(error)
        raise DatabaseUnreachable(f"Cannot connect to {describe(url)}: {reason}") from None
    use_fixed_settings(connection)
    return connection


def use_fixed_settings(connection: psycopg.Connection[Any]) -> None:
    """Make a connection independent of its session's settings.

    Nothing is sent: behind a transaction pooler a setting would affect other clients.
    """
    connection.cursor_factory = BinaryCursor
    connection.server_cursor_factory = BinaryServerCursor
    connection.isolation_level = IsolationLevel.READ_COMMITTED


def describe(url: str | None) -> str:
    """Return `host:port/database` of a URL, safe to log."""
    given = conninfo_to_dict(conninfo(url))
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or given.get('user') or ''}"


def place(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Return where a connection leads and as which user, safe to log: libpq's own view."""
    info = connection.info
    return {"database": f"{info.host}:{info.port}/{info.dbname}", "user": info.user}


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: libpq writes paragraphs."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
