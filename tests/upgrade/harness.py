"""The last release, unpacked from its wheel, and a server that logs every long wait for a lock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import psycopg
import pytest

from mailgres import embedded
from mailgres.embedded import EmbeddedError
from mailgres.schema.release import order

WHEELS = Path(__file__).parents[1] / "fixtures" / "releases"
LONGEST_WAIT_MS = 200
"""The longest that a statement may wait for a lock while a migration runs."""
STATEMENTS_UNDER_LOCK = 10
"""At most so many statements of a migration are sent while it has a strong lock."""
PROGRAM = "from mailgres.cli import main; main()"
ENQUEUE = """
    SELECT enqueue_email(gen_random_uuid(), 'welcome_user', 'person' || n || '@example.com', '{}')
    FROM generate_series(1, %s) n
"""
EXPECTED = (
    "canceling statement due to lock timeout|structure of query does not match function result type"
)


def last_wheel() -> Path:
    """The wheel of the newest version that was released."""
    return max(WHEELS.glob("mailgres-*.whl"), key=lambda path: order(version_of(path)))


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


class Release:
    """A released version of mailgres, with the packages that this environment has."""

    def __init__(self, wheel: Path, place: Path) -> None:
        self.version = version_of(wheel)
        self.place = place
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, *arguments]

    def environment(self, url: str) -> dict[str, str]:
        keep = {key: text for key, text in os.environ.items() if not key.startswith("MAILGRES_")}
        return keep | {"PYTHONPATH": str(self.place), "DATABASE_URL": url}

    def run(self, url: str, *arguments: str) -> str:
        """Run a command of it, which has to succeed."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(url),
            cwd=self.place,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, url: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of it that runs until it is stopped."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(url),
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def watched_server() -> Iterator[tuple[str, Path]]:
    """Give the URL of a server of the test's own, and its log."""
    settings = {"log_lock_waits": "on", "deadlock_timeout": f"{LONGEST_WAIT_MS}ms"}
    with TemporaryDirectory(prefix="mailgres-upgrade-") as directory:
        Path(directory).chmod(0o711)
        try:
            with embedded.server(Path(directory), settings=settings) as url:
                (log,) = Path(directory).rglob("server.log")
                yield url, log
        except EmbeddedError as error:
            pytest.skip(f"this test starts a server: {error}")


class RoundTrips:
    """Asks a server for nothing, again and again, to know how long a statement takes anyway."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest = 0.0
        """In milliseconds."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stopping.wait(0.005):
                start = time.monotonic()
                connection.execute("SELECT")
                self.longest = max(self.longest, (time.monotonic() - start) * 1000)


def long_waits(log: Path, meanwhile: RoundTrips) -> list[str]:
    """The statements that waited longer for a lock than they may.

    On a busy machine, each statement of the transaction that has the lock takes its time, too.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    allowed = LONGEST_WAIT_MS + STATEMENTS_UNDER_LOCK * meanwhile.longest
    found = re.finditer(r"^.* acquired \w+ on .* after ([\d.]+) ms.*$", text, re.MULTILINE)
    return [each[0] for each in found if float(each[1]) > allowed]


def errors(log: Path) -> list[str]:
    """The errors of statements but two: a migration that could not get a lock at once is repeated,
    and so does a claim that was under way when a column was added, as its result is a row of it.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^.*(?:ERROR|FATAL|PANIC):.*$", text, re.MULTILINE)
    return [line for line in found if not re.search(EXPECTED, line)]
