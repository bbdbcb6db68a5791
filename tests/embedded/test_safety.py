"""Nobody else gets in, nothing outside its own directory is touched, and root is not needed."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import site
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from embedded.harness import SOURCE, open_directory, read_process
from mailgres import embedded
from mailgres.embedded import EmbeddedError, binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.conftest import StartUser
    from embedded.harness import ServerDirectory

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def answers(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def doors(paths: list[Path]) -> dict[Path, tuple[int, int, int]]:
    """Mode and owners of paths, which have to stay as they are."""
    status = {path: path.stat() for path in paths}
    return {path: (entry.st_mode, entry.st_uid, entry.st_gid) for path, entry in status.items()}


# --- Who gets in ---


def test_the_embedded_server_listens_on_the_loopback_address_only(
    directory: ServerDirectory,
) -> None:
    with embedded.server(directory.path) as url:
        port = psycopg.conninfo.conninfo_to_dict(url)["port"]
        listening = [
            fields[1]
            for table in ("tcp", "tcp6")
            for fields in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
            if fields[3] == "0A" and fields[1].endswith(f":{int(str(port)):04X}")
        ]
        assert listening == [f"0100007F:{int(str(port)):04X}"]
        assert f".s.PGSQL.{port}" not in Path("/proc/net/unix").read_text()


def test_the_embedded_server_asks_for_a_password(
    directory: ServerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    with embedded.server(directory.path) as url:
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(re.sub(r":[^:@]+@", "@", url))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(re.sub(r":[^:@]+@", ":wrong@", url))
        rules = (directory.data / "pg_hba.conf").read_text().splitlines()
    methods = {line.split()[-1] for line in rules if line and not line.startswith("#")}
    assert methods == {"scram-sha-256"}


def test_only_the_owner_can_read_the_password(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url:
        password = str(psycopg.conninfo.conninfo_to_dict(url)["password"])
        file = directory.home / "password"
        assert file.read_text() == password
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_uid == os.geteuid()
        assert not (directory.home / "initdb.password").exists()
        for pid in directory.processes():
            assert password not in read_process(pid, "cmdline")
            assert password not in read_process(pid, "environ")
        assert password not in directory.log()


def test_every_server_has_a_password_of_its_own(directory: ServerDirectory) -> None:
    with (
        embedded.server(directory.path / "a") as one,
        embedded.server(directory.path / "b") as other,
    ):
        assert (
            len({psycopg.conninfo.conninfo_to_dict(url)["password"] for url in (one, other)}) == 2
        )


# --- What it touches ---


def test_nothing_outside_its_directory_changes_mode_or_owner(directory: ServerDirectory) -> None:
    neighbour = directory.path / "neighbour"
    neighbour.mkdir(mode=0o750)
    programs = binaries.find(os.environ).directory
    watched = [
        neighbour,
        directory.path,
        *directory.path.parents,
        programs / "postgres",
        *programs.parents,
    ]
    before = doors(watched)
    with embedded.server(directory.path / "own") as url:
        assert answers(url)
    assert doors(watched) == before


@as_root
def test_root_does_not_open_a_closed_directory(
    directory: ServerDirectory, closed_directory: Path
) -> None:
    before = doors([closed_directory])
    with (
        pytest.raises(EmbeddedError, match="cannot enter") as raised,
        embedded.server(closed_directory / "data"),
    ):
        pass
    assert raised.value.hint
    assert doors([closed_directory]) == before
    assert directory.is_quiet()


# --- As whom it runs ---


@as_root
def test_the_embedded_server_of_root_runs_unprivileged(directory: ServerDirectory) -> None:
    with embedded.server(directory.path):
        status = read_process(directory.postmaster(), "status")
    for name in ("Uid", "Gid", "Groups"):
        (numbers,) = re.findall(rf"^{name}:(.*)$", status, re.MULTILINE)
        assert "0" not in numbers.split(), name


@as_root
def test_a_closed_working_directory_does_not_matter(
    directory: ServerDirectory, start_user: StartUser, closed_directory: Path
) -> None:
    assert answers(start_user(directory.path, cwd=closed_directory).answer())


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_no_file_of_the_embedded_server_is_open_to_others_whatever_the_umask(
    directory: ServerDirectory, start_user: StartUser, umask: int
) -> None:
    user = start_user(directory.path, umask=umask)
    assert answers(user.answer())
    files = {path.name: path.stat() for path in directory.home.iterdir() if path.is_file()}
    modes = {name: stat.S_IMODE(found.st_mode) for name, found in files.items()}
    assert (modes["password"], modes["port"]) == (0o600, 0o600)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o177} == {}


@as_root
def test_a_strict_umask_does_not_matter(directory: ServerDirectory, start_user: StartUser) -> None:
    assert answers(start_user(directory.path / "new", umask=0o077).answer())


@as_root
@pytest.mark.parametrize("kind", ["wheel"], indirect=True)
def test_programs_in_a_closed_directory_are_copied_once(
    directory: ServerDirectory, closed_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = binaries.find(os.environ).directory.parent
    package = closed_directory / prefix.parent.name
    shutil.copytree(prefix, package / prefix.name, symlinks=True)
    libraries = f"{prefix.parent.name}.libs"
    shutil.copytree(prefix.parent.parent / libraries, closed_directory / libraries)
    monkeypatch.setenv(binaries.CHOICE, str(package / prefix.name / "bin"))
    before = doors([closed_directory, package])

    def copied_program() -> int:
        (program,) = directory.home.glob("binaries/*/*/*/bin/postgres")
        return program.stat().st_ctime_ns

    with embedded.server(directory.path) as url:
        assert answers(url)
        first = copied_program()
    directory.wait_until_quiet()
    with embedded.server(directory.path) as url:
        assert answers(url)
        assert copied_program() == first
    assert doors([closed_directory, package]) == before


@pytest.fixture
def ordinary_user(directory: ServerDirectory) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """Return options for a process of an ordinary user with a home that can read our source."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; this run is an ordinary user's anyway")
    home = open_directory()
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    shutil.copytree(SOURCE / "mailgres", home / "source/mailgres")
    paths = [str(home / "source"), *site.getsitepackages()]
    options: dict[str, Any] = {
        "user": nobody.pw_uid,
        "group": nobody.pw_gid,
        "extra_groups": [],
        "cwd": home,
        "env": {"HOME": str(home), "XDG_DATA_HOME": "", "PYTHONPATH": os.pathsep.join(paths)},
        "python": find_python(nobody.pw_uid, os.pathsep.join(paths)),
    }
    yield options
    shutil.rmtree(home)


def find_python(uid: int, paths: str) -> str:
    """A Python that an ordinary user can run: ours may be below /root."""
    for python in (sys.executable, "/usr/bin/python3"):
        command = [python, "-c", "import mailgres.embedded"]
        environment = {"PYTHONPATH": paths}
        try:
            subprocess.run(
                command, user=uid, cwd="/", env=environment, check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return pytest.skip("no Python that an ordinary user can run has what mailgres needs")


def test_an_ordinary_user_has_a_server_too(
    directory: ServerDirectory, start_user: StartUser, ordinary_user: dict[str, Any]
) -> None:
    os.chown(directory.path, ordinary_user["user"], ordinary_user["group"])
    user = start_user(directory.path, **ordinary_user)
    url = user.answer()
    assert answers(url)
    assert Path(f"/proc/{directory.postmaster()}").stat().st_uid == ordinary_user["user"]
    assert stat.S_IMODE(directory.home.stat().st_mode) == 0o700
    # Root may use it as well, and leaves it to its owner.
    with embedded.server(directory.path) as shared:
        assert shared == url
    user.kill()
    directory.wait_until_quiet()
    again = start_user(directory.path, **ordinary_user)
    assert answers(again.answer())
