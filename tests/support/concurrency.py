"""Several connections at once, without waiting for luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import psycopg

T = TypeVar("T")


def wait_until_blocked(observer: psycopg.Connection, blocked: psycopg.Connection) -> None:
    """Return when a connection waits for a lock of another; `observer` is a third one."""
    pid = blocked.info.backend_pid
    while observer.execute("SELECT pg_blocking_pids(%s) = '{}'", (pid,)).fetchone() == (True,):
        pass


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls in threads that start together; return what they return, in order."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
