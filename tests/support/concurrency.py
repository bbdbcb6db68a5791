"""Several connections at once, without waiting for luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def wait_until_blocked(
    observer: psycopg.Connection, blocked: psycopg.Connection, call: Future[Any]
) -> None:
    """Return when a call waits for a lock that another connection than `observer` holds."""
    pid = blocked.info.backend_pid
    while observer.execute("SELECT pg_blocking_pids(%s) = '{}'", (pid,)).fetchone() == (True,):
        assert not call.done(), f"it did not wait: {call.result()}"


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls in threads that start together; return what they return, in order."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
