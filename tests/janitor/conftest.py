from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from doubles.http_server import serving
from janitor.harness import JanitorHarness
from janitor.notifier import SECRET, Hook, Notifier
from support.fixtures import clock, committed, queue, shared_connection, shared_url

__all__ = ["clock", "committed", "queue", "shared_connection", "shared_url"]


@pytest.fixture
def harness(conn: psycopg.Connection, database_url: str) -> Iterator[JanitorHarness]:
    """A queue of the test's own, and a pool as a worker has one."""
    with ConnectionPool(database_url, min_size=1, max_size=4, timeout=60) as pool:
        yield JanitorHarness(conn, database_url, pool)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    with serving(made) as url:
        made.url = f"{url}/{SECRET}"
        yield made


@pytest.fixture
def notifier(harness: JanitorHarness, hook: Hook) -> Notifier:
    return Notifier(harness, hook)
