"""Every kind of connection an application may hand to mailgres, all used in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext import asyncio as sa_asyncio
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


@dataclass
class Source:
    """A connection, and ways to use it without knowing whether it is awaited."""

    connection: Any
    wait: Callable[[Any], Any] = lambda result: result

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of mailgres on the connection."""
        return self.wait(function(self.connection, *arguments, **options))

    def execute(self, statement: str) -> None:
        """Run the application's own SQL."""
        ours = isinstance(self.connection, psycopg.Connection | psycopg.AsyncConnection)
        self.wait(self.connection.execute(statement if ours else sa.text(statement)))

    def commit(self) -> None:
        self.wait(self.connection.commit())

    def rollback(self) -> None:
        self.wait(self.connection.rollback())


Opener = Callable[[str], Iterator[Source]]


def _url(url: str, driver: str) -> URL:
    found = make_url(url).set(drivername=f"postgresql+{driver}")
    return found.set(query={}) if driver == "asyncpg" else found


@contextmanager
def _runner() -> Iterator[Callable[[Any], Any]]:
    with asyncio.Runner() as runner:

        async def wait(result: Any) -> Any:
            return await result

        yield lambda result: runner.run(wait(result))


def _psycopg(url: str) -> Iterator[Source]:
    with psycopg.connect(url) as connection:
        yield Source(connection)


def _psycopg_async(url: str) -> Iterator[Source]:
    with _runner() as wait:
        connection = wait(psycopg.AsyncConnection.connect(url))
        try:
            yield Source(connection, wait)
        finally:
            wait(connection.close())


def _sync(driver: str, make: Callable[[sa.Engine], Any]) -> Opener:
    def opened(url: str) -> Iterator[Source]:
        engine = sa.create_engine(_url(url, driver), poolclass=NullPool)
        connection = make(engine)
        try:
            yield Source(connection)
        finally:
            connection.close()
            engine.dispose()

    return opened


def _async(driver: str, make: Callable[[sa_asyncio.AsyncEngine], Any]) -> Opener:
    def opened(url: str) -> Iterator[Source]:
        with _runner() as wait:
            engine = sa_asyncio.create_async_engine(_url(url, driver), poolclass=NullPool)

            async def start() -> Any:
                made = make(engine)
                return await made if isinstance(made, sa_asyncio.AsyncConnection) else made

            connection = wait(start())
            try:
                yield Source(connection, wait)
            finally:
                wait(connection.close())
                wait(engine.dispose())

    return opened


def _scoped(engine: sa.Engine) -> scoped_session[Session]:
    return scoped_session(sessionmaker(engine))


def _async_scoped(engine: sa_asyncio.AsyncEngine) -> Any:
    factory = sa_asyncio.async_sessionmaker(engine)
    return sa_asyncio.async_scoped_session(factory, scopefunc=lambda: "the only one")


OPENERS: dict[str, Opener] = {
    "psycopg": _psycopg,
    "psycopg-async": _psycopg_async,
    "connection-psycopg": _sync("psycopg", sa.Engine.connect),
    "connection-psycopg2": _sync("psycopg2", sa.Engine.connect),
    "session-psycopg": _sync("psycopg", Session),
    "session-psycopg2": _sync("psycopg2", Session),
    "scoped-session": _sync("psycopg", _scoped),
    "async-connection-psycopg": _async("psycopg", sa_asyncio.AsyncEngine.connect),
    "async-connection-asyncpg": _async("asyncpg", sa_asyncio.AsyncEngine.connect),
    "async-session-psycopg": _async("psycopg", sa_asyncio.AsyncSession),
    "async-session-asyncpg": _async("asyncpg", sa_asyncio.AsyncSession),
    "async-scoped-session": _async("asyncpg", _async_scoped),
}
SESSIONS = [name for name in OPENERS if "session" in name]
"""Those that connect only when they are used."""

open_source = {name: contextmanager(opener) for name, opener in OPENERS.items()}
