"""Run calls of mailgres on whatever connection the application has.

The calls are a generator (`Steps`), written once; the adapter of the connection's library runs
them, waiting or awaiting. An adapter is loaded only when a connection of its library arrives, so
that `import mailgres` is quick and needs neither library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mailgres.connections.query_calls import not_a_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any, TypeAlias

    import psycopg
    import sqlalchemy
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

    from mailgres.connections.query_calls import Steps

    SyncConnection: TypeAlias = (
        psycopg.Connection[Any]
        | sqlalchemy.Connection
        | sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[Any]
    )
    AsyncConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | sqlalchemy.ext.asyncio.AsyncConnection
        | sqlalchemy.ext.asyncio.AsyncSession
        | sqlalchemy.ext.asyncio.async_scoped_session[Any]
    )

T = TypeVar("T")


def run(
    connection: SyncConnection | AsyncConnection, steps: Steps[T], *, several: bool = False
) -> T | Awaitable[T]:
    """Run calls in the connection's transaction, which the caller starts and ends.

    Several calls are all or none, also on a psycopg connection in autocommit mode.
    """
    libraries = {cls.__module__.partition(".")[0] for cls in type(connection).__mro__}
    if "psycopg" in libraries:
        from mailgres.connections import psycopg_adapter  # noqa: PLC0415 - loaded when needed

        return psycopg_adapter.run(connection, steps, several=several)
    if "sqlalchemy" in libraries:
        from mailgres.connections import sqlalchemy_adapter  # noqa: PLC0415 - loaded when needed

        return sqlalchemy_adapter.run(connection, steps)
    raise not_a_connection(connection)
