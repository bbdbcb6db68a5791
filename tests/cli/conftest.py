from __future__ import annotations

import psycopg
import pytest

from support.program import Program
from support.queue import Queue


@pytest.fixture
def mailgres(database_url: str) -> Program:
    """The console script."""
    return Program(database_url)


@pytest.fixture
def queue(conn: psycopg.Connection) -> Queue:
    """The queue of the test's own database."""
    return Queue(conn)
