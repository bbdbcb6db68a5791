"""Fixtures for tests of the database; the conftest.py of a directory imports those it needs."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from support.postgres import Connect, Server
from support.queue import Clock, Queue


@pytest.fixture(scope="session")
def shared_url(server: Server, template: str) -> Iterator[str]:
    """The URL of a migrated database in which nothing is ever committed."""
    with server.database(template) as url:
        yield url


@pytest.fixture(scope="module")
def shared_connection(shared_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def queue(shared_connection: psycopg.Connection) -> Iterator[Queue]:
    """An empty queue in a transaction that is rolled back: cheap, for tests of one connection."""
    with shared_connection.transaction(force_rollback=True):
        yield Queue(shared_connection)


@pytest.fixture
def clock(queue: Queue) -> Clock:
    """The clock of that queue, stopped at the next whole second."""
    return Clock(queue.conn)


@pytest.fixture
def committed(connect: Connect) -> Queue:
    """A queue in a database of the test's own, where each statement is committed."""
    return Queue(connect())
