"""Runs the janitors at their intervals, in threads of their own, for as long as a worker lives.

The only module that knows APScheduler.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]
from psycopg_pool import ConnectionPool

from mailgres.janitor import JANITORS
from mailgres.janitor.runner import attempt

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any, Self

    import psycopg

    from mailgres.janitor.duty import Connect, Janitor
    from mailgres.janitor.runner import WorkerInfo

THREADS = 3
"""Janitors that run at once, and so the connections they need."""

JITTER = 0.1
"""Up to this part of its interval a janitor runs later, so that workers do not keep step."""

GRACE = 10.0
"""Seconds to wait for running janitors at the end. A statement takes 5 at the most."""


class Scheduler:
    """The janitors of one worker.

    `connections` is a pool, or anything that gives a connection to a `with`.
    """

    def __init__(
        self,
        connections: ConnectionPool[psycopg.Connection[Any]] | Connect,
        worker: WorkerInfo,
        janitors: Iterable[Janitor] = tuple(JANITORS.values()),
    ) -> None:
        self._connect: Connect = (
            connections.connection if isinstance(connections, ConnectionPool) else connections
        )
        self._worker = worker
        self._janitors = tuple(janitors)
        self._stopped = threading.Event()
        self._idle = threading.Condition()
        self._running = 0
        self._scheduler: BackgroundScheduler | None = None

    def start(self) -> None:
        """Run every janitor now and then at its interval; returns at once."""
        if self._scheduler is not None or self._stopped.is_set():
            raise RuntimeError("the janitors were started before: make new ones")
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

    def stop(self, timeout: float = GRACE) -> bool:
        """Start no more, and wait for those that run; returns whether all have ended.

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
            attempt(janitor, self._connect, self._worker, stopped=self._stopped.is_set)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

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
    """Keep APScheduler from logging every run, and every one that the last run made it skip.

    Whoever wants to read that sets the level himself.
    """
    theirs = logging.getLogger("apscheduler")
    if theirs.level == logging.NOTSET:
        theirs.setLevel(logging.ERROR)
