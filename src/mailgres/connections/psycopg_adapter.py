"""Run calls on a connection of psycopg."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import scalar_row

from mailgres import queries
from mailgres.connections.query_calls import drive, drive_async, not_a_connection, translated

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mailgres.connections.query_calls import QueryCall, Steps

T = TypeVar("T")


def run(connection: object, steps: Steps[T], *, several: bool) -> T | Awaitable[T]:
    """Run calls on a connection, or return an awaitable that does."""
    if isinstance(connection, psycopg.Connection):
        return _run(connection, steps, several=several)
    if isinstance(connection, psycopg.AsyncConnection):
        return _run_async(connection, steps, several=several)
    raise not_a_connection(connection)


def _run(connection: psycopg.Connection[Any], steps: Steps[T], *, several: bool) -> T:
    alone = several and _without_transaction(connection)
    with connection.transaction() if alone else nullcontext():
        return drive(steps, partial(_execute, connection))


async def _run_async(
    connection: psycopg.AsyncConnection[Any], steps: Steps[T], *, several: bool
) -> T:
    alone = several and _without_transaction(connection)
    async with connection.transaction() if alone else nullcontext():
        return await drive_async(steps, partial(_execute_async, connection))


def _without_transaction(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
) -> bool:
    """Return whether each of several calls would be a transaction of its own."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


# Cursors are made here and not by the connection, which may have a row or cursor factory that suits
# the application but not these queries.


def _execute(connection: psycopg.Connection[Any], call: QueryCall) -> list[Any]:
    own_cursor = psycopg.Cursor(connection, row_factory=scalar_row)
    with translated(call, psycopg.Error), own_cursor as cursor:
        cursor.execute(queries.load()[call.query], call.parameters)
        return cursor.fetchall() if _gives_rows(call) else []


async def _execute_async(connection: psycopg.AsyncConnection[Any], call: QueryCall) -> list[Any]:
    with translated(call, psycopg.Error):
        async with psycopg.AsyncCursor(connection, row_factory=scalar_row) as cursor:
            await cursor.execute(queries.load()[call.query], call.parameters)
            return await cursor.fetchall() if _gives_rows(call) else []


def _gives_rows(call: QueryCall) -> bool:
    """Return whether a call has a result; in a pipeline the cursor does not know it yet."""
    return not call.query.endswith("savepoint")
