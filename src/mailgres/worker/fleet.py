"""Workers as processes: one that ends at a signal, or several: `mailgres worker --processes N`.

The parent of several does nothing but watch. A worker that dies is replaced, later and later if it
keeps dying. Workers whose parent died end as if they were told to.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING

from mailgres import logs
from mailgres.errors import MailgresError
from mailgres.safe_errors import where
from mailgres.settings.model import new_worker_name
from mailgres.worker.build import open_pipeline, open_worker, running_janitors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from mailgres.settings import Settings
    from mailgres.worker.build import Pipeline
    from mailgres.worker.worker import Summary

    Beside = Callable[[Pipeline, threading.Event], AbstractContextManager[None]]
    """What runs in the process of a worker until it stops."""

log = logging.getLogger(__name__)

ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT)
CHECK_INTERVAL_SECONDS = 0.5
"""Seconds between looks at the workers."""
MAX_RESTART_DELAY_SECONDS = 30.0
"""Seconds at the most before a worker that died is replaced; one that lived longer starts anew."""
EXIT_MARGIN_SECONDS = 10.0
"""Seconds that workers get beyond their grace to leave: janitors end their chunk."""


def leave(number: int) -> None:
    """End this process now."""
    os._exit(128 + number)


def on_signals(
    stop: Callable[[], None],
    again: Callable[[int], None] = leave,
    numbers: Iterable[signal.Signals] = ASKED_TO_STOP,
) -> None:
    """Stop at the first SIGTERM or SIGINT; at the second do `again`: leave at once.

    `stop` runs in a thread: what a handler interrupts may hold the very lock that it needs.
    """
    reported: queue.SimpleQueue[int] = queue.SimpleQueue()  # the one queue a handler may use
    seen = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            again(number)
        seen = True
        reported.put(number)

    def wait() -> None:
        reported.get()
        stop()

    threading.Thread(target=wait, name="mailgres-signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, handle)


def nothing_beside(_pipeline: Pipeline, _stopping: threading.Event) -> nullcontext[None]:
    """Run nothing beside a worker."""
    return nullcontext()


def run_one(settings: Settings, beside: Beside = nothing_beside) -> Summary:
    """Run one worker until a signal comes; and beside it what is to end with it."""
    stopping = threading.Event()
    on_signals(stopping.set)
    with open_pipeline(settings) as pipeline:
        worker = pipeline.worker(stopping=stopping)
        with running_janitors(pipeline), beside(pipeline, stopping):
            return worker.run()


def run_none(settings: Settings, beside: Beside) -> None:
    """Run only what would be beside a worker, and the janitors, until a signal comes."""
    stopping = threading.Event()
    on_signals(stopping.set)
    with (
        open_pipeline(settings, on_demand=True) as pipeline,
        running_janitors(pipeline, working=False),
        beside(pipeline, stopping),
    ):
        stopping.wait()


def run_many(settings: Settings, beside: Beside = nothing_beside) -> None:
    """Run as many as the settings say until a signal comes; what is beside them runs here."""
    stopping = threading.Event()
    fleet = Fleet(settings)

    def leave_together(number: int) -> None:
        fleet.kill()
        leave(number)

    on_signals(stopping.set, leave_together)
    # Opened here, so that what is wrong with the settings is said once, and not by each of them.
    with open_pipeline(settings, on_demand=True) as pipeline, beside(pipeline, stopping):
        try:
            while not stopping.is_set():
                fleet.fill()
                stopping.wait(CHECK_INTERVAL_SECONDS)
        finally:
            fleet.stop()
    if failed := fleet.failed():
        raise MailgresError(
            f"{failed} of {settings.processes} workers did not end well",
            "The log says why. Emails that they still held come back when their leases end.",
        )


class Fleet:
    """The places for workers, and who fills them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = [WorkerSlot(settings) for _ in range(settings.processes)]

    def fill(self) -> None:
        """Start a worker wherever there is none, unless it is too soon after the last one."""
        for slot in self._slots:
            slot.fill()

    def stop(self) -> None:
        """Ask all to end, wait as long as they are allowed to take, and end those that do not."""
        for slot in self._slots:
            slot.terminate()
        deadline = time.monotonic() + self._settings.grace.total_seconds() + EXIT_MARGIN_SECONDS
        for slot in self._slots:
            slot.join(max(deadline - time.monotonic(), 0.0))
        self.kill()

    def kill(self) -> None:
        """End all at once."""
        for slot in self._slots:
            slot.kill()

    def failed(self) -> int:
        """How many did not end well."""
        return sum(slot.failed for slot in self._slots)


class WorkerSlot:
    """A place for one worker at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: SpawnProcess | None = None
        self._started = 0.0
        self._exits = 0
        self._start_at = 0.0

    @property
    def failed(self) -> bool:
        """Whether the last worker here ended otherwise than well.

        SIGTERM is what it was sent: an interpreter that is about to end no longer handles it.
        """
        return self._process is not None and self._process.exitcode not in (0, -signal.SIGTERM)

    def fill(self) -> None:
        """Have a worker here; mourn one that died."""
        if self._process is not None and not self._process.is_alive():
            self._log_exit(self._process)
            self._process = None
        if self._process is None and time.monotonic() >= self._start_at:
            self._start()

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()

    def join(self, timeout: float) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            self._process.join(timeout)

    def kill(self) -> None:
        """End it."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        mine = replace(self._settings, processes=1, worker_name=new_worker_name())
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=_run_child, args=(mine,))
        with _signals_wait():
            process.start()
        self._process = process
        self._started = time.monotonic()

    def _log_exit(self, process: SpawnProcess) -> None:
        now = time.monotonic()
        self._exits = self._exits + 1 if now - self._started < MAX_RESTART_DELAY_SECONDS else 1
        wait = min(2.0 ** (self._exits - 2), MAX_RESTART_DELAY_SECONDS) if self._exits > 1 else 0.0
        self._start_at = now + wait
        log.error(
            "a worker died with %s; the next one starts in %.0f s",
            process.exitcode,
            wait,
            extra={"action": "fleet", "exit": process.exitcode, "pid": process.pid},
        )


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold signals back while a child is made, which inherits that: until it can handle them."""
    resource_tracker.ensure_running()  # which would let them through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_child(settings: Settings) -> None:
    """Run one worker of several.

    A terminal and a service manager signal all of them, and then the parent does, too: so a second
    signal means nothing here, and Ctrl-C is the parent's business.
    """
    stopping = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_signals(stopping.set, lambda _: None, [signal.SIGTERM])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_STOP)
    threading.Thread(target=_watch_parent, args=(stopping,), daemon=True).start()
    logs.start(settings)
    try:
        with open_worker(settings, stopping=stopping) as worker:
            worker.run()
    except MailgresError as error:
        log.error("%s", error, extra={"action": "fleet"})  # noqa: TRY400 - it says all there is
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote an email
        log.critical("this worker failed: %s", where(error), extra={"action": "fleet"})
        sys.exit(1)


def _watch_parent(stopping: threading.Event) -> None:
    """Stop when the parent dies, however it dies: nobody else would ever stop this worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        if not stopping.is_set():
            log.error("the parent died: this worker ends", extra={"action": "fleet"})
        stopping.set()
