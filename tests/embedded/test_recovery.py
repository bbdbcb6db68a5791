"""Whatever is killed, the next call gets a server with all committed data."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from embedded.harness import read_process
from mailgres import embedded
from mailgres.embedded import cluster
from support.concurrency import until

if TYPE_CHECKING:
    from embedded.conftest import StartUser
    from embedded.harness import ServerDirectory


def write_row(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE committed AS SELECT 42 AS answer")


def read_row(url: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT answer FROM committed").fetchone()


def test_a_killed_postmaster_is_replaced(directory: ServerDirectory, start_user: StartUser) -> None:
    first = start_user(directory.path)
    url = first.answer()
    write_row(url)
    killed = directory.postmaster()
    os.kill(killed, signal.SIGKILL)
    # At once, before its supervisor can have noticed.
    with embedded.server(directory.path) as again:
        assert read_row(again) == (42,)
        assert directory.postmaster() != killed
        assert read_row(url) == (42,), "the URL of an earlier user went stale"


def test_a_killed_postmaster_leaves_nothing_running(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    user = start_user(directory.path)
    url = user.answer()
    with psycopg.connect(url) as connection:
        pid = connection.info.backend_pid
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000000)")
        until(lambda: "SELECT" in read_process(pid, "cmdline"), "the backend is busy")
        # A busy backend does not look whether its postmaster lives.
        os.kill(directory.postmaster(), signal.SIGKILL)
        directory.wait_until_quiet()
        connection.close()
    assert user.process.poll() is None


def test_a_killed_postmaster_with_a_busy_backend_is_replaced(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    url = start_user(directory.path).answer()
    write_row(url)
    with psycopg.connect(url) as connection:
        pid = connection.info.backend_pid
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000000)")
        until(lambda: "SELECT" in read_process(pid, "cmdline"), "the backend is busy")
        os.kill(directory.postmaster(), signal.SIGKILL)
        with embedded.server(directory.path) as again:
            assert read_row(again) == (42,)
        connection.close()


def test_a_killed_supervisor_takes_the_server_with_it(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    user = start_user(directory.path)
    write_row(user.answer())
    os.kill(directory.supervisor(), signal.SIGKILL)
    directory.wait_until_quiet()
    assert user.process.poll() is None
    with embedded.server(directory.path) as url:
        assert read_row(url) == (42,)


def test_a_server_without_supervisor_is_ended_before_the_next_start(
    directory: ServerDirectory, start_user: StartUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cluster,
        "SHUTDOWN_STAGES",
        ((signal.SIGINT, 0.2), (signal.SIGQUIT, 0.2), (signal.SIGKILL, 10.0)),
    )
    write_row(start_user(directory.path).answer())
    orphan = directory.postmaster()
    # Stopped, it cannot follow the kernel's signal, as where there is no such signal.
    os.kill(orphan, signal.SIGSTOP)
    os.kill(directory.supervisor(), signal.SIGKILL)
    with embedded.server(directory.path) as url:
        assert read_row(url) == (42,)
        assert orphan not in directory.processes()
        assert len(directory.postmasters()) == 1


def test_nobody_is_sent_to_a_server_that_is_being_replaced(
    directory: ServerDirectory, start_user: StartUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SHUTDOWN_STAGES", ((signal.SIGINT, 1.0), (signal.SIGKILL, 10.0)))
    write_row(start_user(directory.path).answer())
    # It still looks ready, and the kernel takes connections for it.
    os.kill(directory.postmaster(), signal.SIGSTOP)
    os.kill(directory.supervisor(), signal.SIGKILL)

    def use(_: int) -> object:
        with embedded.server(directory.path) as url:
            return read_row(f"{url}?connect_timeout=5")

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(use, range(3))) == [(42,)] * 3


def test_a_supervisor_that_is_asked_to_stop_stops_the_server(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    user = start_user(directory.path)
    user.answer()
    os.kill(directory.supervisor(), signal.SIGTERM)
    directory.wait_until_quiet()
    assert "received fast shutdown request" in directory.log()


def test_a_recycled_process_id_does_not_hinder_the_start(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url:
        write_row(url)
        stale = (directory.data / "postmaster.pid").read_text()
    directory.wait_until_quiet()
    owner = directory.data.stat()
    # A program of the server's own account has the number now: PostgreSQL would give up.
    account: dict[str, Any] = {} if os.geteuid() else {"user": owner.st_uid, "group": owner.st_gid}
    with subprocess.Popen(["sleep", "600"], cwd="/", **account) as stranger:
        pid_file = directory.data / "postmaster.pid"
        pid_file.write_text("\n".join([str(stranger.pid), *stale.split("\n")[1:]]))
        os.chown(pid_file, owner.st_uid, owner.st_gid)
        with embedded.server(directory.path) as again:
            assert read_row(again) == (42,)
        assert stranger.poll() is None, "a foreign process was ended"
        stranger.kill()
