"""Run calls on a connection or session of SQLAlchemy, with whatever driver its engine uses."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, CursorResult, Result, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from mailgres import queries
from mailgres.connections.query_calls import drive, drive_async, not_a_connection, translated

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mailgres.connections.query_calls import QueryCall, Steps

T = TypeVar("T")

# asyncpg raises the operating system's error for a failed connection, not SQLAlchemy's.
_ERRORS = (DBAPIError, OSError)


def run(connection: object, steps: Steps[T]) -> T | Awaitable[T]:
    """Run calls on a connection or session, or return an awaitable that does."""
    if isinstance(connection, Connection | Session | scoped_session):
        return drive(steps, partial(_execute, connection))
    if isinstance(connection, AsyncConnection | AsyncSession | async_scoped_session):
        return drive_async(steps, partial(_execute_async, connection))
    raise not_a_connection(connection)


def _execute(connection: Connection | Session | scoped_session[Any], call: QueryCall) -> list[Any]:
    with translated(call, *_ERRORS):
        return _values(connection.execute(_statement(call.query), call.parameters))


async def _execute_async(
    connection: AsyncConnection | AsyncSession | async_scoped_session[Any], call: QueryCall
) -> list[Any]:
    with translated(call, *_ERRORS):
        return _values(await connection.execute(_statement(call.query), call.parameters))


@cache
def _statement(name: str) -> TextClause:
    return text(re.sub(r"%\((\w+)\)s", r":\1", queries.load()[name]))


def _values(result: Result[Any]) -> list[Any]:
    has_rows = isinstance(result, CursorResult) and result.returns_rows
    return list(result.scalars().all()) if has_rows else []
