from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from inbox.client import SECRET, Client, serving
from inbox.sending import work
from inbox.window import Window, showing
from mailgres.settings import load
from mailgres.worker import open_worker
from support.browser import Browser
from support.queue import Queue


@pytest.fixture
def queue(conn: psycopg.Connection) -> Queue:
    """The queue of the test's own database."""
    return Queue(conn)


@pytest.fixture
def run_worker(database_url: str) -> Callable[[], None]:
    """Let a worker capture what is due."""
    return lambda: work(database_url)


@pytest.fixture
def stranger(database_url: str) -> Iterator[Client]:
    """A client of an inbox that has no session."""
    with serving(database_url) as client:
        yield client


@pytest.fixture
def client(stranger: Client) -> Client:
    """A client that opened the printed address."""
    return stranger.log_in()


@pytest.fixture
def window(chromium: Browser, stranger: Client) -> Iterator[Window]:
    """The browser, at the printed address of the test's own inbox."""
    with showing(chromium, stranger.port, SECRET) as shown:
        yield shown


@pytest.fixture
def worker(database_url: str) -> Iterator[None]:
    """A worker that captures what is enqueued, at once."""
    flags = {"database_url": database_url, "providers": "capture", "profile": "development"}
    with open_worker(load({}, flags)) as running, ThreadPoolExecutor(1) as pool:
        done = pool.submit(running.run)
        try:
            yield
        finally:
            running.stop()
            done.result()
