"""A process that has imported mailgres, and forks itself for every program that a test starts.

    python -m support.fork_server DESCRIPTOR

What a test starts is a process like any other: its own environment, directory, descriptors,
signals and exit code. It saves what takes longest, the start of the interpreter and the imports.
`support.forked` is the client. An order is one message on the socket: the program as JSON, and
four descriptors: standard input, output and error, and a pipe that gets the process id and, in the
end, the wait status.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

LARGEST = 1 << 20
"""Bytes of an order."""
STREAMS = 3
PRELOADED = ("mailgres.providers.ses.provider", "mailgres.janitor.scheduler", "mailgres.demo")


def preload() -> None:
    """Import what the programs need; it must start no thread, because a fork copies only one."""
    cli = import_module("mailgres.cli")
    for name in cli.COMMANDS:
        import_module(f"mailgres.cli.commands.{name}")
    for name in PRELOADED:
        import_module(name)


class ForkServer:
    """Forks for each order, and reports how the children end."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._children: dict[int, int] = {}
        self._wake, end = os.pipe()
        os.set_blocking(end, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the test run
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(end)

    def serve(self) -> dict[str, Any] | None:
        """Return the order in the child that carries it out, and None when no client is left."""
        while True:
            ready, _, _ = select.select([self._orders.fileno(), self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, LARGEST)
                self._report()
            if self._orders.fileno() in ready:
                text, files, _, _ = socket.recv_fds(self._orders, LARGEST, STREAMS + 1)
                if not text:
                    return None
                order: dict[str, Any] = json.loads(text)
                pid = os.fork()
                if pid == 0:
                    _separate(order, files)
                    return order
                self._children[pid] = files.pop()
                for each in files:
                    os.close(each)

    def _report(self) -> None:
        while self._children:
            pid, how = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            status = self._children.pop(pid)
            _tell(status, how)
            os.close(status)


def _separate(order: dict[str, Any], files: list[int]) -> None:
    """Make a child ready for signals, and only then tell its process id."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["session"]:
        os.setsid()
    for target in range(STREAMS):
        os.dup2(files[target], target)
    _tell(files[STREAMS], os.getpid())
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))


def _tell(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # whoever started the child no longer asks
        os.write(descriptor, f"{number}\n".encode())


def carry_out(order: dict[str, Any]) -> None:
    """Be the program of an order, as `python` would: a script, or a module after `-m`."""
    gc.enable()
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    more = os.environ.get("PYTHONPATH")
    sys.path[:0] = more.split(os.pathsep) if more else []
    if order["module"]:
        sys.path.insert(0, order["cwd"])
        sys.argv[:] = ["-m", *order["arguments"]]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(order["script"]).parent))
        sys.argv[:] = [order["script"], *order["arguments"]]
        runpy.run_path(order["script"], run_name="__main__")


def end(code: object) -> None:
    """End as `sys.exit` does, but do not take the modules apart: that takes most of the time."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


def main(descriptor: int) -> None:
    """Serve until the test run closes its end."""
    del sys.path[0]  # the directory of the tests
    preload()
    gc.freeze()
    gc.disable()
    if order := ForkServer(socket.socket(fileno=descriptor)).serve():
        try:
            carry_out(order)
        except SystemExit as done:
            # Whatever is out of the ordinary is left to Python.
            if isinstance(done.code, int | None) and threading.active_count() == 1:
                end(done.code)
            raise


if __name__ == "__main__":
    main(int(sys.argv[1]))
