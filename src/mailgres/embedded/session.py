"""Use the server: join it, start it if it is not running, leave it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import binaries, cluster
from .accounts import server_account
from .errors import EmbeddedError
from .home import Home, find_home
from .locks import FileLock
from .start_order import StartOrder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .binaries import Binaries

LOCK_SECONDS = 400
START_SECONDS = 300
CONNECT_SECONDS = 1
RETRY_SECONDS = 0.05

logger = logging.getLogger("mailgres.embedded")


@contextmanager
def server(
    data_dir: Path | None = None, *, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the URL of a running PostgreSQL for the duration of the `with` block.

    It is the embedded server, even if the environment names another. Its data is kept between runs,
    by default in the user's data directory. All processes that use the same directory share
    one server; it stops when the last one leaves or dies. The `settings` take effect when this call
    starts the server, not when it joins a running one.
    """
    users, url = _join(data_dir, dict(settings or {}))
    with users:
        yield url


def is_new(data_dir: Path | None = None) -> bool:
    """Return whether no server has kept data there yet, of whatever version."""
    home = find_home(data_dir, 0, os.environ)
    return not any(home.path.parent.glob("postgresql-*/data"))


def _join(data_dir: Path | None, settings: dict[str, str]) -> tuple[FileLock, str]:
    """Become a user of the server by taking the returned lock."""
    cluster.check_settings(settings)
    found = binaries.find(os.environ)
    home = find_home(data_dir, found.major, os.environ)
    try:
        return _enter(home, found, settings)
    except OSError as error:
        raise EmbeddedError(f"The embedded PostgreSQL cannot use {home.path}: {error}") from error


def _enter(home: Home, found: Binaries, settings: dict[str, str]) -> tuple[FileLock, str]:
    home.create()
    with FileLock(home.start_lock) as start:
        # One at a time: a second process could join a server that the first is replacing.
        start.exclusive(LOCK_SECONDS)
        users = FileLock(home.users_lock)
        try:
            # From here on the server is not stopped. If it is stopping, this waits for it.
            users.shared(LOCK_SECONDS)
            port = _ensure_running(home, found, settings)
            password = home.password()
        except BaseException:
            users.close()
            raise
    url = f"postgresql://{cluster.SUPERUSER}:{password}@{cluster.HOST}:{port}/postgres"
    return users, url


def _ensure_running(home: Home, found: Binaries, settings: dict[str, str]) -> int:
    """Return the port of the server, starting it if no supervisor is alive."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with FileLock(home.supervisor_lock) as supervisor:
            if supervisor.try_exclusive():
                _start(home, found, settings, supervisor)
        port = _open_port(home)
        if port is not None:
            return port
        # It is being started for a user that died, or its supervisor has not noticed its end yet.
        time.sleep(RETRY_SECONDS)
    raise cluster.startup_failure("PostgreSQL did not become ready", home)


def _open_port(home: Home) -> int | None:
    """Return the port on which the server accepts connections, if it does."""
    recorded = cluster.read_postmaster(home)
    if recorded is None or not recorded.ready:
        return None
    try:
        # The file may be of a server that was killed.
        socket.create_connection((cluster.HOST, recorded.port), CONNECT_SECONDS).close()
    except OSError:
        return None
    return recorded.port


def _start(home: Home, found: Binaries, settings: dict[str, str], supervisor: FileLock) -> None:
    """Prepare everything the server needs, and start its supervisor."""
    _warn_of_other_majors(home)
    account = server_account(home.data)
    account.require_entry(home.path)
    usable = binaries.for_account(found, account, home.copies)
    cluster.shut_down(home)  # processes that a killed supervisor left behind
    cluster.remove_stale_pid_file(home)
    cluster.initialise(usable, home, account, supervisor)
    logger.info("starting PostgreSQL %s", usable.version, extra={"action": "embedded_start"})
    _run_supervisor(StartOrder(home, usable, account, settings), supervisor)


def _warn_of_other_majors(home: Home) -> None:
    """Warn when a newer PostgreSQL starts empty next to data of an older one."""
    if home.data.exists():
        return
    for other in home.path.parent.glob("postgresql-*/data"):
        logger.warning(
            "data in %s is of another major version and stays unused; this server starts empty",
            other,
            extra={"action": "embedded_start"},
        )


def _run_supervisor(order: StartOrder, supervisor: FileLock) -> None:
    """Start the supervisor, which keeps our lock, and wait until it reports."""
    with _fresh_log(order.home) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mailgres.embedded.supervisor"],
            cwd=order.home.path,
            env=_supervisor_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # so that Ctrl-C does not reach it
            pass_fds=(supervisor.fileno(),),
        )
    with process:
        try:
            answer, _ = process.communicate(order.to_json().encode(), START_SECONDS)
        except subprocess.TimeoutExpired:
            raise cluster.startup_failure("PostgreSQL did not start in time", order.home) from None
    if not answer:
        raise cluster.startup_failure("The supervisor of PostgreSQL ended early", order.home)
    failure = json.loads(answer)
    if failure:
        raise EmbeddedError(failure["message"], failure["hint"])


def _fresh_log(home: Home) -> IO[bytes]:
    """Open an empty log, keeping the previous one."""
    if home.log.exists():
        home.log.replace(home.previous_log)
    # Appending, so that writers continue correctly when the supervisor empties the file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(home.log, flags, 0o600), "ab")


def _supervisor_environment() -> dict[str, str]:
    """Return an environment in which it finds this same package."""
    paths = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return cluster.child_environment() | {"PYTHONPATH": paths}
