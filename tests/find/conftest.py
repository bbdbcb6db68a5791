from __future__ import annotations

import psycopg
import pytest

from support.queue import Queue


@pytest.fixture
def queue(conn: psycopg.Connection) -> Queue:
    """The queue of the test's own database."""
    return Queue(conn)
