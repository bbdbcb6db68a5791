"""The server lives exactly as long as it has users."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psycopg
import pytest

from embedded.harness import parent, stays
from mailgres import embedded
from mailgres.embedded import binaries
from support.concurrency import until

if TYPE_CHECKING:
    from pathlib import Path

    from embedded.conftest import StartUser
    from embedded.harness import ServerDirectory


def test_a_new_embedded_server_answers(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url, psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT current_setting('server_encoding'), current_setting('fsync'),"
            " current_setting('max_connections')"
        ).fetchone()
    assert row == ("UTF8", "on", "100")


def test_the_embedded_server_keeps_its_data_between_runs(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    directory.wait_until_quiet()
    with embedded.server(directory.path) as again, psycopg.connect(again) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    assert again == url


def test_a_second_process_shares_the_server(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    first = start_user(directory.path)
    url = first.answer()
    postmaster = directory.postmaster()
    second = start_user(directory.path)
    assert second.answer() == url
    assert directory.postmasters() == [postmaster]

    assert first.leave() == 0
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    stays(lambda: directory.postmasters() == [postmaster], "the server")

    assert second.leave() == 0
    directory.wait_until_quiet()
    assert not (directory.data / "postmaster.pid").exists()


def test_calls_in_one_process_share_the_server(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as outer:
        with embedded.server(directory.path) as inner:
            assert inner == outer
        with psycopg.connect(outer) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert len(directory.postmasters()) == 1


def test_the_server_stops_when_the_block_raises(directory: ServerDirectory) -> None:
    with pytest.raises(ZeroDivisionError), embedded.server(directory.path):
        raise ZeroDivisionError
    directory.wait_until_quiet()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_server_stops_when_its_only_user_is_killed(
    directory: ServerDirectory, start_user: StartUser, number: signal.Signals
) -> None:
    user = start_user(directory.path)
    url = user.answer()
    # A transaction left open must not hold the shutdown up.
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        user.kill(number)
        directory.wait_until_quiet()
        connection.close()


def test_an_interrupt_in_the_terminal_spares_the_server(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    first = start_user(directory.path, start_new_session=True)
    first.answer()
    url = start_user(directory.path).answer()
    postmaster = directory.postmaster()
    # What Ctrl-C does: the signal goes to everything that was started from that terminal.
    os.killpg(first.process.pid, signal.SIGINT)
    first.process.wait()
    stays(lambda: directory.postmasters() == [postmaster], "the server")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_supervisor_is_no_child_of_the_program_that_starts_it(
    directory: ServerDirectory,
) -> None:
    with embedded.server(directory.path):
        assert parent(directory.supervisor()) != os.getpid()


@pytest.mark.parametrize("moment", ["data.unfinished", "data/postmaster.pid"])
def test_the_server_stops_when_its_starter_is_killed_midway(
    directory: ServerDirectory, start_user: StartUser, moment: str
) -> None:
    user = start_user(directory.path)
    until(lambda: list(directory.path.glob(f"*/{moment}")), f"{moment} is there")
    user.kill()
    directory.wait_until_quiet()
    with embedded.server(directory.path) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_who_comes_while_the_starter_is_killed_waits_for_its_initdb(
    directory: ServerDirectory, start_user: StartUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = directory.path / "trace"
    trace.touch()
    trace.chmod(0o666)
    programs = traced_programs(directory, trace)
    monkeypatch.setenv(binaries.CHOICE, str(programs))
    first = start_user(directory.path)
    until(lambda: "begin" in trace.read_text(), "initdb runs")
    second = start_user(directory.path)
    first.kill()
    with psycopg.connect(second.answer()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert trace.read_text().split() == ["begin", "end"] * 2


def traced_programs(directory: ServerDirectory, trace: Path) -> Path:
    """The programs, with an initdb that takes its time and tells when it begins and ends."""
    real = binaries.find(os.environ).directory
    programs = directory.path / "programs"
    programs.mkdir()
    (programs / "postgres").symlink_to(real / "postgres")
    (programs / "initdb").write_text(
        f'''#!/bin/sh
        [ "$1" = -V ] && exit 0
        echo begin >> "{trace}"
        sleep 1
        "{real}/initdb" "$@"
        status=$?
        echo end >> "{trace}"
        exit $status'''
    )
    (programs / "initdb").chmod(0o755)
    return programs


def test_processes_that_start_together_get_one_server(
    directory: ServerDirectory, start_user: StartUser
) -> None:
    users = [start_user(directory.path) for _ in range(4)]
    urls = {user.answer() for user in users}
    assert len(urls) == 1
    assert len(directory.postmasters()) == 1
    with psycopg.connect(urls.pop()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for user in users:
        assert user.leave() == 0


def test_a_user_that_arrives_while_the_server_stops_gets_a_server(
    directory: ServerDirectory,
) -> None:
    for _ in range(8):
        # The second call meets the supervisor before, while or after it stops the server.
        with embedded.server(directory.path) as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_settings_are_passed_to_the_embedded_server(directory: ServerDirectory) -> None:
    settings = {"max_connections": "17"}
    with (
        embedded.server(directory.path, settings=settings) as url,
        psycopg.connect(url) as connection,
    ):
        assert connection.execute("SHOW max_connections").fetchone() == ("17",)
