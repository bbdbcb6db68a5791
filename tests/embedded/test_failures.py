"""What cannot work fails with one clear error, and leaves nothing running."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from mailgres import embedded
from mailgres.embedded import EmbeddedError, binaries, supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from embedded.conftest import StartUser
    from embedded.harness import ServerDirectory


def test_the_embedded_server_takes_another_port_if_its_own_is_in_use(
    directory: ServerDirectory,
) -> None:
    with embedded.server(directory.path) as url:
        port = int(str(psycopg.conninfo.conninfo_to_dict(url)["port"]))
    directory.wait_until_quiet()
    with socket.create_server(("127.0.0.1", port)), embedded.server(directory.path) as other:
        assert other != url
        with psycopg.connect(other) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_does_not_start_says_why(directory: ServerDirectory) -> None:
    with (
        pytest.raises(EmbeddedError, match='"shared_buffers": "much"') as raised,
        embedded.server(directory.path, settings={"shared_buffers": "much"}),
    ):
        pass
    assert "server.log" in str(raised.value.hint)
    directory.wait_until_quiet()
    with embedded.server(directory.path) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_supervisor_that_dies_early_is_noticed(
    directory: ServerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EmbeddedError, match="ended early"), embedded.server(directory.path):
        pass


def test_a_failed_initdb_is_reported_with_its_message(
    directory: ServerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = directory.path / "programs"
    programs.mkdir()
    postgres = binaries.find(os.environ).directory / "postgres"
    (programs / "postgres").symlink_to(postgres)
    fake = '#!/bin/sh\n[ "$1" = -V ] && exit 0\necho "No space left on device" >&2\nexit 1\n'
    (programs / "initdb").write_text(fake)
    (programs / "initdb").chmod(0o755)
    monkeypatch.setenv(binaries.CHOICE, str(programs))
    with (
        pytest.raises(EmbeddedError, match="No space left on device"),
        embedded.server(directory.path),
    ):
        pass
    assert not directory.data.exists()
    assert not (directory.home / "initdb.password").exists()


def test_a_lost_password_is_a_clear_error(directory: ServerDirectory) -> None:
    with embedded.server(directory.path):
        pass
    directory.wait_until_quiet()
    (directory.home / "password").unlink()
    with pytest.raises(EmbeddedError, match="nobody can log in"), embedded.server(directory.path):
        pass


def test_a_file_in_place_of_the_directory_is_a_clear_error(directory: ServerDirectory) -> None:
    (directory.path / "file").touch()
    with pytest.raises(EmbeddedError, match="cannot use"), embedded.server(directory.path / "file"):
        pass


@pytest.mark.parametrize("name", ["fsync", "listen_addresses", "PORT"])
def test_the_embedded_server_refuses_settings_that_break_its_promises(
    tmp_path: Path, name: str
) -> None:
    with (
        pytest.raises(EmbeddedError, match=name),
        embedded.server(tmp_path, settings={name: "off"}),
    ):
        pass


def test_the_log_of_the_run_before_is_kept(directory: ServerDirectory) -> None:
    for _ in range(3):
        with embedded.server(directory.path):
            pass
        directory.wait_until_quiet()
    assert directory.log().count("database system is ready") == 1
    assert sorted(path.name for path in directory.home.glob("server.log*")) == [
        "server.log",
        "server.log.1",
    ]


def test_the_log_of_the_embedded_server_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    monkeypatch.setattr(supervisor, "LOG_BYTES", 10)
    with path.open("a") as log:
        monkeypatch.setattr(sys, "stderr", log)
        print("short", file=log, flush=True)
        supervisor.bound_log()
        assert path.read_text() == "short\n"
        print("too long", file=log, flush=True)
        supervisor.bound_log()
        print("new", file=log, flush=True)
        assert path.read_text() == "new\n"


def test_no_statement_and_no_value_reaches_the_log(directory: ServerDirectory) -> None:
    with (
        embedded.server(directory.path) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE recipients (address text PRIMARY KEY)")
        insert = "INSERT INTO recipients VALUES ('someone@example.com')"
        connection.execute(insert)
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(insert)
    assert "duplicate key" in directory.log()
    assert "someone@example.com" not in directory.log()


def test_a_user_sees_an_error_and_no_traceback(
    directory: ServerDirectory, start_user: StartUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(binaries.CHOICE, "/nowhere")
    assert start_user(directory.path).answer().startswith("EmbeddedError: ")
