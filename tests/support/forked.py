"""Programs started by the fork server: processes like any other, without the start of Python."""

from __future__ import annotations

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from support.fork_server import LARGEST

TESTS = Path(__file__).parents[1]
LOCALE = "C.UTF-8"
"""How the fork server reads and writes text: Python decides it when it starts."""

_one_order = threading.Lock()


def run(
    command: Sequence[str | Path],
    *,
    env: dict[str, str],
    stdin: str | None = None,
    cwd: str | Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it printed."""
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with start(command, env=env, cwd=cwd, stdin=source, **streams) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def start(
    command: Sequence[str | Path], *, env: dict[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start the console script, or `python -m` and a module.

    What Python must know before it starts, such as another locale, needs a Python of its own.
    """
    special = any(name.startswith("PYTHON") and name != "PYTHONPATH" for name in env)
    kind = subprocess.Popen if special or env.get("LC_ALL") != LOCALE else _Forked
    words = [str(word) for word in command]
    return kind(words, env=env, text=True, encoding="utf-8", **options)


def inherited() -> dict[str, str]:
    """The environment of the test run, without what it says to Python."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


class _Forked(subprocess.Popen[str]):
    """A child of the fork server, which tells its wait status."""

    def _execute_child(self, args: list[str], *given: Any) -> None:
        usual = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        told = usual.bind(self, args, *given).arguments
        ends = [told["p2cread"], told["c2pwrite"], told["errwrite"]]
        order = {
            "module": args[2] if args[1:2] == ["-m"] else None,
            "script": args[0],
            "arguments": args[3 if args[1:2] == ["-m"] else 1 :],
            "env": told["env"],
            "cwd": str(told["cwd"] or Path.cwd()),
            "session": told["start_new_session"],
        }
        self._status, theirs = os.pipe()
        files = [end if end != -1 else usual for usual, end in enumerate(ends)]
        try:
            with _one_order:
                socket.send_fds(_server(), [json.dumps(order).encode()], [*files, theirs])
        finally:
            os.close(theirs)
            names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(told[name] for name in names))  # type: ignore[attr-defined]
        self._reports = os.fdopen(self._status)
        self.pid = int(self._reports.readline())
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        wait = 0 if flags & os.WNOHANG else None
        if not select.select([self._reports], [], [], wait)[0]:
            return 0, 0
        with self._reports:
            return self.pid, int(self._reports.readline())

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


@cache
def _server() -> socket.socket:
    """Start the fork server of this test run; it ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    server = subprocess.Popen(
        [sys.executable, "-m", "support.fork_server", str(theirs.fileno())],
        env={"LC_ALL": LOCALE},
        cwd=TESTS,
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours
