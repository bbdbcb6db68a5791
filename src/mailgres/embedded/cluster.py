"""The database cluster on disk: create it, describe its server, shut that server down."""

from __future__ import annotations

import locale
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import EmbeddedError
from .home import write_private
from .locks import FileLock
from .waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .accounts import Account
    from .binaries import Binaries
    from .home import Home

HOST = "127.0.0.1"
SUPERUSER = "postgres"
INITDB_SECONDS = 180
TAIL_LINES = 15
PROCESSES = Path("/proc")
SHUTDOWN_STAGES = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
ORPHAN_SECONDS = 3.0
"""Seconds that backends may take to notice that their postmaster is gone."""

FIXED_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "on",
    "password_encryption": "scram-sha-256",
    "logging_collector": "off",
    "log_destination": "stderr",
}
"""Settings that keep the server safe and under control; a caller cannot change these."""

DEFAULT_SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    # The log must not contain addresses or payloads, which statements and error details have.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
"""Values for a small machine."""


@dataclass(frozen=True)
class Postmaster:
    """What `postmaster.pid` says about the server's first process."""

    pid: int
    port: int
    ready: bool


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse settings that would break a guarantee of the embedded server."""
    refused = sorted(name for name in settings if name.lower() in {*FIXED_SETTINGS, "port"})
    if refused:
        raise EmbeddedError(
            f"The embedded PostgreSQL does not let these settings be changed: {', '.join(refused)}"
        )


def child_environment() -> dict[str, str]:
    """Return the environment of PostgreSQL's programs; no PG* variable may redirect them."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "TMPDIR")
    return {"LC_ALL": "C"} | {name: os.environ[name] for name in kept if name in os.environ}


def server_command(
    found: Binaries, home: Home, port: int, settings: Mapping[str, str]
) -> list[str]:
    """Return the command line of the server. It holds no secret: every user can read it."""
    command = [found.program("postgres"), "-D", str(home.data), "-p", str(port)]
    for name, value in (DEFAULT_SETTINGS | dict(settings) | FIXED_SETTINGS).items():
        command += ["-c", f"{name}={value}"]
    return command


def initialise(found: Binaries, home: Home, account: Account, supervisor: FileLock) -> None:
    """Create the data directory, unless it exists."""
    home.initdb_password.unlink(missing_ok=True)
    if home.data.exists():
        return
    shutil.rmtree(home.unfinished_data, ignore_errors=True)
    home.unfinished_data.mkdir(mode=0o700)
    account.give(home.unfinished_data)
    password = home.password()
    write_private(home.initdb_password, password)
    account.give(home.initdb_password)
    try:
        _run_initdb(found, home, account, supervisor)
    finally:
        home.initdb_password.unlink()
    home.unfinished_data.rename(home.data)


def _run_initdb(found: Binaries, home: Home, account: Account, supervisor: FileLock) -> None:
    command = [
        found.program("initdb"),
        f"--pgdata={home.unfinished_data}",
        f"--username={SUPERUSER}",
        f"--pwfile={home.initdb_password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        f"--locale={_utf8_locale()}",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=home.path,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INITDB_SECONDS,
            check=False,
            # If we are killed now, no other process starts before this initdb has ended.
            pass_fds=(supervisor.fileno(),),
            **account.popen_options(),
        )
    except subprocess.TimeoutExpired:
        raise EmbeddedError(f"initdb did not finish within {INITDB_SECONDS} s") from None
    if done.returncode != 0:
        raise EmbeddedError(_with_lines("initdb could not make a data directory", done.stdout))


def _utf8_locale() -> str:
    """Return the plainest locale of this system that knows the classes of all characters."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return "C.UTF-8"


def read_postmaster(home: Home) -> Postmaster | None:
    """Return what the server wrote about itself; None while that is missing or incomplete."""
    try:
        lines = (home.data / "postmaster.pid").read_text().splitlines()
        return Postmaster(int(lines[0]), int(lines[3]), lines[7].strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def startup_failure(message: str, home: Home) -> EmbeddedError:
    """Return an error that ends with the last lines of the server's log."""
    try:
        text = home.log.read_text(errors="replace")
    except OSError:
        text = ""
    return EmbeddedError(_with_lines(message, text), f"The whole log is {home.log}")


def _with_lines(message: str, text: str) -> str:
    lines = text.strip().splitlines()[-TAIL_LINES:]
    return "\n".join([f"{message}:", *(f"  {line}" for line in lines)]) if lines else message


def shut_down(home: Home, postmaster: int | None = None) -> None:
    """Stop every process of the server: by SIGINT, then SIGQUIT, then SIGKILL.

    Also those that a killed postmaster or supervisor left behind. Killing loses no committed data:
    the next start recovers it.
    """
    with FileLock(home.postgres_lock) as postgres:
        for number, seconds in SHUTDOWN_STAGES:
            if postgres.try_exclusive():
                return
            # SIGINT is a fast shutdown for the postmaster; for a backend it is only a cancel.
            polite = number == signal.SIGINT
            pids = _postmaster_pid(home, postmaster) if polite else _all_pids(home)
            for pid in pids:
                _send(pid, number)
            if wait_for(postgres.try_exclusive, seconds if pids else ORPHAN_SECONDS):
                return
    raise EmbeddedError(
        f"Processes of an earlier PostgreSQL in {home.data} are still running",
        "End them, then try again.",
    )


def remove_stale_pid_file(home: Home) -> None:
    """Remove the file of a killed server, once it is certain that none of its processes is alive.

    PostgreSQL goes by the process id in the file, and would refuse to start if that number
    belongs to another program of the same user by now, as it often does in a container.
    """
    if _lists_processes() and not _all_pids(home):
        (home.data / "postmaster.pid").unlink(missing_ok=True)


def _postmaster_pid(home: Home, known: int | None) -> list[int]:
    """Return the postmaster, if it is alive. The id in a stale file may be another process's."""
    if known is not None:
        return [known]
    recorded = read_postmaster(home)
    return [recorded.pid] if recorded and recorded.pid in _all_pids(home) else []


def _all_pids(home: Home) -> list[int]:
    """Return the processes whose directory is the data directory, as with all of a server's."""
    if not _lists_processes():
        recorded = read_postmaster(home)
        return [recorded.pid] if recorded else []
    return [int(entry.name) for entry in PROCESSES.glob("[0-9]*") if _works_in(entry, home.data)]


def _lists_processes() -> bool:
    return (PROCESSES / "self/cwd").exists()


def _works_in(process: Path, data: Path) -> bool:
    try:
        return str((process / "cwd").readlink()).removesuffix(" (deleted)") == str(data)
    except OSError:
        return False  # ended, or not ours


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended meanwhile
