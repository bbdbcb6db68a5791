"""Workers as processes: one that stops at a signal, or several: `mailgres worker --processes N`.

The parent of several only supervises. A worker that dies is replaced, with growing delays if it
keeps dying. Workers whose parent died stop as if they got a signal.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
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

    from mailgres.settings import Settings
    from mailgres.worker.build import Pipeline
    from mailgres.worker.worker import Summary

    Beside = Callable[[Pipeline, threading.Event], AbstractContextManager[None]]
    """What runs beside a worker, in its process, until it stops."""

log = logging.getLogger(__name__)

ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT)
CHECK_INTERVAL_SECONDS = 0.5
"""Seconds between checks of the workers."""
MAX_RESTART_DELAY_SECONDS = 30.0
"""Longest delay in seconds before a dead worker is replaced; a longer life resets the delay."""
EXIT_MARGIN_SECONDS = 10.0
"""Seconds beyond their grace that workers get to stop: janitors finish their chunk."""


def leave(number: int) -> None:
    """End this process immediately."""
    os._exit(128 + number)


def on_signals(
    stop: Callable[[], None],
    again: Callable[[int], None] = leave,
    numbers: Iterable[signal.Signals] = ASKED_TO_STOP,
) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; call `again` at the second, to end immediately.

    Both run in a thread: the code that a handler interrupts may hold the lock that `stop` needs,
    and a handler may run late or never, because the main thread runs it when it next wakes up. A
    signal that another thread received, or that came just before a wait, does not wake it up. So
    the thread reads the numbers of the signals from a pipe that the interpreter writes immediately.
    """
    received, written = os.pipe()
    os.set_blocking(written, False)
    wanted = set(numbers)

    def wait() -> None:
        seen = False
        while True:
            for number in filter(wanted.__contains__, os.read(received, 64)):
                if seen:
                    again(number)
                seen = True
                stop()

    threading.Thread(target=wait, name="mailgres-signals", daemon=True).start()
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    for number in wanted:
        signal.signal(number, lambda *_: None)  # without a handler nothing would be written


def nothing_beside(_pipeline: Pipeline, _stopping: threading.Event) -> nullcontext[None]:
    """Run nothing beside a worker."""
    return nullcontext()


def run_one(settings: Settings, beside: Beside = nothing_beside) -> Summary:
    """Run one worker, and `beside` with it, until a signal arrives."""
    stopping = threading.Event()
    on_signals(stopping.set)
    with open_pipeline(settings) as pipeline:
        worker = pipeline.worker(stopping=stopping)
        with running_janitors(pipeline), beside(pipeline, stopping):
            return worker.run()


def run_none(settings: Settings, beside: Beside) -> None:
    """Run only `beside` and the janitors, without a worker, until a signal arrives."""
    stopping = threading.Event()
    on_signals(stopping.set)
    with (
        open_pipeline(settings, on_demand=True) as pipeline,
        running_janitors(pipeline, working=False),
        beside(pipeline, stopping),
    ):
        stopping.wait()


def run_many(settings: Settings, beside: Beside = nothing_beside) -> None:
    """Run as many workers as the settings say until a signal arrives; `beside` runs here."""
    stopping = threading.Event()
    fleet = Fleet(settings)

    def leave_together(number: int) -> None:
        fleet.kill()
        leave(number)

    on_signals(stopping.set, leave_together)
    # Opened here, so that an error in the settings is reported once and not by every worker.
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
            "The log says why. The emails they still held become pending when their leases expire.",
        )


class Fleet:
    """The slots for workers, and the processes in them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = [WorkerSlot(settings) for _ in range(settings.processes)]

    def fill(self) -> None:
        """Start a worker in every empty slot, unless it is too soon after the last one."""
        for slot in self._slots:
            slot.fill()

    def stop(self) -> None:
        """Stop all workers, wait for as long as they may take, and kill the others."""
        for slot in self._slots:
            slot.terminate()
        deadline = time.monotonic() + self._settings.grace.total_seconds() + EXIT_MARGIN_SECONDS
        for slot in self._slots:
            slot.join(max(deadline - time.monotonic(), 0.0))
        self.kill()

    def kill(self) -> None:
        """Kill all workers immediately."""
        for slot in self._slots:
            slot.kill()

    def failed(self) -> int:
        """Return how many workers ended with an error."""
        return sum(slot.failed for slot in self._slots)


class WorkerSlot:
    """A slot for one worker at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: SpawnProcess | None = None
        self._started = 0.0
        self._exits = 0
        self._start_at = 0.0

    @property
    def failed(self) -> bool:
        """Return whether the last worker here ended with an error.

        SIGTERM counts as success: an interpreter that is about to exit no longer handles it.
        """
        return self._process is not None and self._process.exitcode not in (0, -signal.SIGTERM)

    def fill(self) -> None:
        """Start a worker unless one runs; log the exit of one that died."""
        if self._process is not None and not self._process.is_alive():
            self._log_exit(self._process)
            self._process = None
        if self._process is None and time.monotonic() >= self._start_at:
            self._start()

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process is not None:
            self._process.terminate()

    def join(self, timeout: float) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            self._process.join(timeout)

    def kill(self) -> None:
        """Kill it."""
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
    """Block signals while a child is started; the child inherits that until it can handle them."""
    resource_tracker.ensure_running()  # it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_child(settings: Settings) -> None:
    """Run one worker of several.

    A terminal or a service manager signals all of them, and then the parent does, too. So a second
    signal is ignored here, and Ctrl-C is left to the parent.
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
    """Stop when the parent dies, however it dies: nothing else would stop this worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        if not stopping.is_set():
            log.error("the parent died: this worker ends", extra={"action": "fleet"})
        stopping.set()
