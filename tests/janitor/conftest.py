from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from janitor.house import House
from support.fixtures import clock, committed, queue, shared_connection, shared_url

__all__ = ["clock", "committed", "queue", "shared_connection", "shared_url"]


@pytest.fixture
def house(conn: psycopg.Connection, database_url: str) -> Iterator[House]:
    """A queue of the test's own, and a pool as a worker has one."""
    with ConnectionPool(database_url, min_size=1, max_size=4, timeout=20) as pool:
        yield House(conn, database_url, pool)
