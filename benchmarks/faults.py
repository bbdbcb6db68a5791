"""The disturbances of the chaos run. Each is a context manager: it lasts as long as its block."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg

from mailgres import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.chaos import Scene

TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
    ORDER BY random() LIMIT 1
"""
TERMINATE_SECONDS = 0.1
KILL_SECONDS = 1.0
LOAD_SECONDS = 0.25
READERS = 4


class Server:
    """A server that can be restarted; a context manager that stops it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="mailgres-bench-", ignore_cleanup_errors=True
        )
        self._place = Path(self._folder.name)
        self._place.chmod(0o711)  # for the account of root's server
        self._users = ExitStack()
        self.url = self._start()

    def _start(self) -> str:
        settings = {"shared_buffers": "256MB", "max_connections": "200"}
        return self._users.enter_context(embedded.server(self._place / "data", settings=settings))

    def restart(self) -> None:
        """Shut it down, which cuts every connection, and start it again on the same port."""
        self._users.close()
        if self._start() != self.url:
            raise RuntimeError("the server has another address after its restart")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._users.close()
        self._folder.cleanup()


@contextmanager
def repeating(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Repeat an action, at once and then every so often, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            action()
            ended.wait(seconds)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def restart(scene: Scene) -> Iterator[None]:
    """Restart PostgreSQL."""
    scene.server.restart()
    yield


@contextmanager
def terminated_backends(scene: Scene) -> Iterator[None]:
    """Terminate one connection after another."""

    def terminate() -> None:
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(scene.url, autocommit=True) as conn,
        ):
            conn.execute(TERMINATE)

    with repeating(terminate, TERMINATE_SECONDS):
        yield


@contextmanager
def killed_workers(scene: Scene) -> Iterator[None]:
    """Kill the worker with SIGKILL every second, and start another one at once."""
    with repeating(scene.replace_worker, KILL_SECONDS):
        yield


@contextmanager
def load(scene: Scene) -> Iterator[None]:
    """Let more emails arrive than the worker can send: 1.5 times its rate."""
    with repeating(lambda: scene.arrive(1.5 * LOAD_SECONDS), LOAD_SECONDS):
        yield


@contextmanager
def idle_in_transaction(scene: Scene) -> Iterator[None]:
    """Keep a transaction open that has read and written."""
    with psycopg.connect(scene.url) as conn:
        conn.execute("CREATE TABLE elsewhere (number int)")
        conn.execute("SELECT txid_current()")
        yield


@contextmanager
def readers(scene: Scene) -> Iterator[None]:
    """Keep four snapshots, as long reports do."""
    with ExitStack() as stack:
        for _ in range(READERS):
            conn = stack.enter_context(psycopg.connect(scene.url))
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            conn.execute("SELECT count(*) FROM pg_class")
        yield


FAULTS = {
    "restart of PostgreSQL": restart,
    "terminated backends": terminated_backends,
    "SIGKILL of the worker": killed_workers,
    "1.5 times the load": load,
    "idle in transaction": idle_in_transaction,
    "four REPEATABLE READ readers": readers,
}
