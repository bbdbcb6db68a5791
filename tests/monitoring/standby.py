"""A streaming replica of the tests' own server, made with that server's programs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from mailgres.embedded import accounts, binaries
from support.postgres import GIVEN_URL, find_program
from worker.harness import until

BEHIND = "SELECT pg_last_wal_replay_lsn() < %s::pg_lsn"


@contextmanager
def standby(url: str) -> Iterator[str]:
    """Copy the server of a database and let the copy follow it; gives the copy's URL."""
    if GIVEN_URL:
        pytest.skip("a replica is made of the tests' own server only")
    with TemporaryDirectory(prefix="mailgres-standby-") as directory:
        place = Path(directory)
        place.chmod(0o711)
        data = place / "data"
        account = accounts.server_account(data)
        found = binaries.for_account(binaries.find(os.environ), account, place / "programs")
        data.mkdir(mode=0o700)
        account.give(data)
        copy(url, data, found.major, account)
        with running(found.program("postgres"), data, account) as port:
            parts = urlsplit(url)
            name, password = parts.username, parts.password
            replica = parts._replace(netloc=f"{name}:{password}@127.0.0.1:{port}").geturl()
            catch_up(url, replica)
            yield replica


def copy(url: str, data: Path, major: int, account: accounts.Account) -> None:
    """Take a base backup that knows whom to follow."""
    parts = urlsplit(url)
    where = [f"--host={parts.hostname}", f"--port={parts.port}", f"--username={parts.username}"]
    command = [str(find_program("pg_basebackup", major)), "-D", str(data), "-R", "-X", "stream"]
    done = subprocess.run(
        [*command, "--checkpoint=fast", "--no-password", *where],
        env={**os.environ, "PGPASSWORD": unquote(parts.password or "")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **account.popen_options(),
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def running(postgres: str, data: Path, account: accounts.Account) -> Iterator[int]:
    """Run the copy; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    # A standby refuses to follow a server that allows more of these (tests/conftest.py).
    settings += ["-c", "max_prepared_transactions=20"]
    with subprocess.Popen(
        [postgres, "-D", str(data), "-p", str(port), *settings],
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **account.popen_options(),
    ) as server:
        try:
            yield port
        finally:
            server.send_signal(2)  # SIGINT: at once, but in order
            server.wait(60)


def catch_up(primary: str, replica: str) -> None:
    """Wait until the copy answers and has all that the original has now."""
    with psycopg.connect(primary) as conn:
        row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None

    def caught_up() -> bool:
        try:
            with psycopg.connect(replica) as conn:
                return conn.execute(BEHIND, row).fetchone() == (False,)
        except psycopg.OperationalError:
            return False

    until(caught_up, "the replica has caught up")
