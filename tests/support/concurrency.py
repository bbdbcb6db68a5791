"""Several things at once, without waiting for luck."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

DEADLINE = 60.0
"""Seconds that anything may take: far more than it needs, also on a busy machine."""


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> None:
    """Wait for a condition, and fail if it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


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
