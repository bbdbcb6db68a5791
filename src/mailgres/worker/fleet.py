"""Several workers on one machine, one process each: `mailgres worker --processes N`."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from mailgres.settings.model import new_worker_name
from mailgres.worker.build import open_worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from mailgres.settings import Settings
    from mailgres.worker.worker import Summary

log = logging.getLogger(__name__)


def on_signals(stop: Callable[[], None]) -> None:
    """Stop at the first SIGTERM or SIGINT; leave at once at the second."""
    seen = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if seen.is_set():
            os._exit(128 + number)
        seen.set()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def run_one(settings: Settings) -> Summary:
    """Run one worker until a signal comes."""
    with open_worker(settings) as worker:
        on_signals(worker.stop)
        return worker.run()


def _run_child(settings: Settings) -> None:
    """Run one worker of several. Ctrl-C reaches all of them, but the parent speaks for it."""
    with open_worker(settings) as worker:
        on_signals(worker.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        worker.run()


def run_many(settings: Settings) -> None:
    """Run as many as the settings say; one that dies is replaced."""
    spawn = multiprocessing.get_context("spawn")
    stopping = threading.Event()

    def start() -> SpawnProcess:
        mine = replace(settings, processes=1, worker_name=new_worker_name())
        process = spawn.Process(target=_run_child, args=(mine,))
        process.start()
        return process

    processes = [start() for _ in range(settings.processes)]

    def stop() -> None:
        stopping.set()
        for process in processes:
            process.terminate()

    on_signals(stop)
    while not stopping.wait(0.5):
        for place, process in enumerate(processes):
            if not process.is_alive():
                log.error("a worker died", extra={"action": "fleet", "exit": process.exitcode})
                processes[place] = start()
    for process in processes:
        process.join(settings.grace.total_seconds() + 5)
