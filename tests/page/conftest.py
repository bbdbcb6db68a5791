from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from page.client import VIEWER_SECRET, Client, serving
from support.queue import Queue


@pytest.fixture
def queue(conn: psycopg.Connection) -> Queue:
    """The queue of the test's own database."""
    return Queue(conn)


@pytest.fixture
def stranger(database_url: str) -> Iterator[Client]:
    """A client without a session."""
    with serving(database_url) as client:
        yield client


@pytest.fixture
def operator(stranger: Client) -> Client:
    """A client that entered the secret of operators."""
    return stranger.sign_in()


@pytest.fixture
def viewer(stranger: Client) -> Client:
    """A client that entered the secret of viewers."""
    return stranger.sign_in(VIEWER_SECRET, "vic")
