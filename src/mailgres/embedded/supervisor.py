"""The parent of the server: starts it, and stops it when its last user has left.

It runs as a separate process, detached from the user that started it, because any user may end
first, and without notice (SIGKILL). It reads its order from standard input, writes one line of JSON
to standard output when the server is ready or has failed, and then only watches.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .cluster import (
    HOST,
    child_environment,
    read_postmaster,
    server_command,
    shut_down,
    startup_failure,
)
from .errors import EmbeddedError
from .locks import FileLock
from .start_order import StartOrder
from .waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from .home import Home

WATCH_SECONDS = 0.2
READY_SECONDS = 120
PORT_ATTEMPTS = 5
LOG_BYTES = 10_000_000
PR_SET_PDEATHSIG = 1


class StopRequest:
    """Records that a signal asked this process to stop."""

    def __init__(self) -> None:
        self.received = False
        # The starting user may have blocked or ignored signals.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, self._receive)
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.received = True


def main() -> int:
    """Carry out the order on standard input."""
    order = StartOrder.from_json(sys.stdin.read())
    detach()
    stop = StopRequest()
    write_pid(order.home)
    try:
        process = start(order)
    except (EmbeddedError, OSError) as error:
        report(error)
        return 1
    try:
        report(None)
        watch(order.home, process, stop)
    finally:
        shut_down(order.home, process.pid if process.poll() is None else None)
        process.wait()
    return 0


def detach() -> None:
    """Detach from the starting user: it need not wait for us, and we outlive it."""
    if os.fork():
        os._exit(0)


def write_pid(home: Home) -> None:
    """Write the process id into the supervisor's lock file, for people who look."""
    home.supervisor_lock.write_text(f"{os.getpid()}\n")


def start(order: StartOrder) -> subprocess.Popen[bytes]:
    """Start the server on a free port. If another program takes that port first, try another."""
    port = order.home.preferred_port() or free_port()
    for _ in range(PORT_ATTEMPTS):
        log_size = os.fstat(sys.stderr.fileno()).st_size
        process = launch(order, port)
        if wait_until_ready(order.home, process):
            order.home.remember_port(port)
            return process
        if not bind_failed(order.home, log_size):
            raise startup_failure("PostgreSQL did not start", order.home)
        port = free_port()
    raise startup_failure(f"PostgreSQL found no free port on {HOST}", order.home)


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def launch(order: StartOrder, port: int) -> subprocess.Popen[bytes]:
    """Start the postmaster; its processes all inherit the lock that shows that they are alive."""
    with FileLock(order.home.postgres_lock) as postgres:
        postgres.exclusive(seconds=5)
        return subprocess.Popen(
            server_command(order.binaries, order.home, port, order.settings),
            cwd=order.home.path,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=(postgres.fileno(),),
            preexec_fn=die_with_parent(),  # noqa: PLW1509 (this process has one thread)
            **order.account.popen_options(),
        )


def die_with_parent() -> Callable[[], None] | None:
    """Return a function that lets the kernel end the postmaster when this process is killed.

    By SIGQUIT, the immediate shutdown: nothing could force a slower one that got stuck.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    return arrange


def wait_until_ready(home: Home, process: subprocess.Popen[bytes]) -> bool:
    """Wait for the server to accept connections; stop it if it does not in time."""

    def ready() -> bool:
        server = read_postmaster(home)
        return server is not None and server.pid == process.pid and server.ready

    wait_for(lambda: process.poll() is not None or ready(), READY_SECONDS)
    if process.poll() is None and not ready():
        shut_down(home, process.pid)
        process.wait()
    return process.poll() is None


def bind_failed(home: Home, log_size: int) -> bool:
    """Return whether the last start failed because of its port."""
    with home.log.open(errors="replace") as log:
        log.seek(log_size)
        return "could not bind" in log.read()


def report(error: Exception | None) -> None:
    """Report the result to the starting user, and close its pipe."""
    line = {"message": str(error), "hint": getattr(error, "hint", None)} if error else {}
    with suppress(BrokenPipeError):  # it may have been killed meanwhile
        os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def watch(home: Home, process: subprocess.Popen[bytes], stop: StopRequest) -> None:
    """Return when the server is no longer wanted, or has ended.

    The lock is kept until this process ends, so that a new user waits for the old server to stop.
    """
    users = FileLock(home.users_lock)
    while not stop.received and process.poll() is None and not users.try_exclusive():
        bound_log()
        time.sleep(WATCH_SECONDS)


def bound_log() -> None:
    """Empty the log when it is too large. All writers append, so they continue at its start."""
    if os.fstat(sys.stderr.fileno()).st_size > LOG_BYTES:
        os.ftruncate(sys.stderr.fileno(), 0)


if __name__ == "__main__":
    sys.exit(main())
