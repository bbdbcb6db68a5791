"""A peer as a process, seen from the runner: commands, answers, how many calls it made."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from benchmarks.roster import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.roster import Entry

ANSWER_SECONDS = 180
"""Seconds after which a command has failed."""
QUIET_SECONDS = 30
"""Seconds without a call after which a drain has failed."""
END_SECONDS = 20


def clock() -> int:
    """Return the nanoseconds of the clock that all processes of a machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class PeerFailed(Exception):
    """The peer cannot do what was asked: its own words say why."""


class PeerProcess:
    """A running peer; a context manager that ends it."""

    def __init__(self, entry: Entry, url: str) -> None:
        self.entry = entry
        self.done = 0
        self.last_ns = 0
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            entry.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._answer("start", ANSWER_SECONDS)

    def ask(self, command: str, *words: object, seconds: float = ANSWER_SECONDS) -> Any:  # noqa: ANN401
        """Give a command and return its answer."""
        stdin = self.process.stdin
        assert stdin is not None  # noqa: S101
        try:
            stdin.write(" ".join((command, *map(str, words))) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(f"{self.entry.name} ended: {self._last_words()}") from None
        return self._answer(command, seconds)

    def wait_until_done(self, count: int, quiet: float = QUIET_SECONDS) -> None:
        """Wait until it made that many calls in all; fail if it makes none for long."""
        wait_until_done([self], count, quiet)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it run no instruction inside the block: it starts on what was prepared at the end."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it: first by the end of its input, then by SIGKILL."""
        if self.process.stdin:
            with suppress(BrokenPipeError):  # it has ended already
                self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        if self.process.stdout:
            self.process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        for text in self.process.stdout:
            line = json.loads(text)
            if "done" in line:
                self.done, self.last_ns = line["done"], line["last_ns"]
            else:
                self._answers.put(line)
        self._answers.put({"error": "the process ended"})

    def _answer(self, command: str, seconds: float) -> Any:  # noqa: ANN401
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.kill()  # a late answer would be taken for that of the next command
            raise PeerFailed(f"{command}: no answer after {seconds:.0f} s") from None
        if "error" in line:
            raise PeerFailed(f"{line['error']} {self._last_words()}".strip())
        return line["answer"]

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def wait_until_done(workers: list[PeerProcess], count: int, quiet: float = QUIET_SECONDS) -> None:
    """Wait until the workers together made that many calls; fail if none is made for long."""
    seen, changed_at = -1, time.monotonic()
    while (done := sum(worker.done for worker in workers)) < count:
        if done != seen:
            seen, changed_at = done, time.monotonic()
        elif time.monotonic() - changed_at > quiet:
            raise PeerFailed(f"{count - done} of {count} were not sent: no call for {quiet:.0f} s")
        time.sleep(0.005)
