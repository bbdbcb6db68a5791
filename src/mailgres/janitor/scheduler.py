"""Run the janitors at their intervals, in threads of their own, while a worker runs.

Only this module imports APScheduler.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]
from psycopg_pool import ConnectionPool

from mailgres.janitor import JANITORS
from mailgres.janitor.runner import attempt, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, Self

    import psycopg

    from mailgres.janitor.janitors import Connect, Janitor
    from mailgres.janitor.runner import WorkerInfo

log = logging.getLogger(__name__)

THREADS = 3
"""Janitors that run at once, and so the connections they need."""

JITTER = 0.1
"""Up to this part of its interval a janitor runs later, so that workers do not keep step."""

STOP_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for running janitors at the end. A statement takes 5 at the most."""


_ABOUT_CLOCK = {"action": "janitor.clock"}
CLOCK_CHECK_SECONDS = 5.0
CLOCK_TOLERANCE_SECONDS = 2.0
"""How far the clock may be set back without notice: time servers correct it all the time."""


class Scheduler:
    """The janitors of one worker.

    `connections` is a pool, or anything that gives a connection to a `with`.
    """

    def __init__(
        self,
        connections: ConnectionPool[psycopg.Connection[Any]] | Connect,
        worker: WorkerInfo,
        janitors: Iterable[Janitor] = tuple(JANITORS.values()),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect: Connect = (
            connections.connection if isinstance(connections, ConnectionPool) else connections
        )
        self._worker = worker
        self._janitors = tuple(janitors)
        self._stopped = threading.Event()
        self._idle = threading.Condition()
        self._running = 0
        self._failing: set[str] = set()
        self._scheduler: BackgroundScheduler | None = None
        self._clock = clock

    def start(self) -> None:
        """Run every janitor now, then at its interval; return at once."""
        if self._scheduler is not None or self._stopped.is_set():
            raise RuntimeError("a scheduler can be started only once")
        _hush()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(THREADS)},
            # However late: a janitor that waited for a thread has its work still to do.
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for janitor in self._janitors:
            self._scheduler.add_job(
                self._attempt,
                "interval",
                args=(janitor,),
                id=janitor.name,
                seconds=janitor.every.total_seconds(),
                jitter=janitor.every.total_seconds() * JITTER,
                next_run_time=datetime.now(UTC),
            )
        self._scheduler.start()
        threading.Thread(target=self._watch_clock, name="clock", daemon=True).start()

    def _watch_clock(self) -> None:
        """Run all janitors when the clock was set back: their next times are then too far away.

        A clock that was set ahead makes them run once early, which does no harm.
        """
        before = self._clock() - time.monotonic()
        while not self._stopped.wait(CLOCK_CHECK_SECONDS):
            now = self._clock() - time.monotonic()
            scheduler = self._scheduler
            if scheduler is not None and now < before - CLOCK_TOLERANCE_SECONDS:
                log.warning(
                    "the clock was set back; janitors run now", extra={"action": "janitor.clock"}
                )
                for job in scheduler.get_jobs():
                    job.modify(next_run_time=datetime.now(UTC))
            before = now

    def stop(self, timeout: float = STOP_TIMEOUT_SECONDS) -> bool:
        """Start no more janitors and wait for the running ones; return whether all have ended.

        A janitor that runs ends after the chunk that it is at.
        """
        self._stopped.set()
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            # First, or its thread may still hand a job to threads that take none any more.
            scheduler.remove_all_jobs()
            scheduler.shutdown(wait=False)
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, timeout)

    def _attempt(self, janitor: Janitor) -> None:
        with self._idle:
            if self._stopped.is_set():
                return
            self._running += 1
        try:
            error = attempt(janitor, self._connect, self._worker, stopped=self._stopped.is_set)
            self._note(janitor, error)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _note(self, janitor: Janitor, error: str | None) -> None:
        """Record a failure for the alerts, and the first success after it."""
        if error is not None:
            self._failing.add(janitor.name)
            note(janitor, self._connect, self._worker, error)
        elif janitor.name in self._failing and note(janitor, self._connect, self._worker, None):
            self._failing.discard(janitor.name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _hush() -> None:
    """Keep APScheduler from logging every run and every skipped run, unless a level was set."""
    theirs = logging.getLogger("apscheduler")
    if theirs.level == logging.NOTSET:
        theirs.setLevel(logging.ERROR)
