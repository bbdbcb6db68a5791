"""Real users of the embedded server, in processes of their own, and a look at what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mailgres
from support.concurrency import DEADLINE, until

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(mailgres.__file__).parents[1]

PROGRAM = """
import json, sys
from pathlib import Path
from mailgres import embedded
try:
    with embedded.server(Path(sys.argv[1]), settings=json.loads(sys.argv[2])) as url:
        print(url, flush=True)
        sys.stdin.readline()
except embedded.EmbeddedError as error:
    print("EmbeddedError:", error, flush=True)
"""


def stays(condition: Callable[[], bool], what: str, seconds: float = 1.0) -> None:
    """Fail if a condition ceases to hold; long enough for a supervisor that looks every 0.2 s."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition(), f"does not stay: {what}"
        time.sleep(0.02)


class User:
    """A process inside `with embedded.server(...)`, until a signal ends it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        python: str = sys.executable,
        settings: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-c", PROGRAM, str(data_dir), json.dumps(settings or {})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(SOURCE), **os.environ, **(env or {})},
            **options,
        )

    def answer(self) -> str:
        """The line it prints: a URL, or an error."""
        assert self.process.stdout
        line: str = self.process.stdout.readline()
        return line.strip()

    def leave(self) -> int:
        """Let it go its normal way; its exit code."""
        self.process.communicate("\n", timeout=DEADLINE)
        return self.process.returncode

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal."""
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE)


@dataclass(frozen=True)
class ServerDirectory:
    """A data directory of a test."""

    path: Path

    @property
    def home(self) -> Path:
        """The directory of the one server that was started here."""
        (home,) = self.path.glob("postgresql-*")
        return home

    @property
    def data(self) -> Path:
        return self.home / "data"

    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def supervisor(self) -> int:
        return int((self.home / "supervisor.lock").read_text())

    def processes(self) -> list[int]:
        """Everything that runs here: the supervisor, the postmaster, its children, initdb."""
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if self._holds(entry)]

    def postmasters(self) -> list[int]:
        """The processes that were started as a server on the data directory."""
        start = f"postgres\0-D\0{self.data}\0"
        found = [pid for pid in self.processes() if start in read_process(pid, "cmdline")]
        # A backend looks like its parent for a moment, until it has set its title.
        return [pid for pid in found if parent(pid) not in found]

    def is_quiet(self) -> bool:
        return not self.processes()

    def wait_until_quiet(self) -> None:
        """Wait until nothing runs here any more."""
        until(self.is_quiet, f"no process in {self.path}")

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def _holds(self, process: Path) -> bool:
        try:
            # A zombie has no working directory any more, so it does not count.
            where = str((process / "cwd").readlink()).removesuffix(" (deleted)")
        except OSError:
            return False
        return where == str(self.path) or where.startswith(f"{self.path}/")


def read_process(pid: int, name: str) -> str:
    """A file of /proc about a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid: int) -> int | None:
    """The parent of a process, if that still lives."""
    # The second field is the name in parentheses, which may hold anything.
    fields = read_process(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else None


def open_directory() -> Path:
    """A new directory that other users can enter, with a space in its name."""
    # Not pytest's tmp_path, whose parents are closed to others.
    directory = Path(tempfile.mkdtemp(prefix="mailgres test "))
    directory.chmod(0o711)
    return directory.resolve()
