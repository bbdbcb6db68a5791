"""A directory of its own for every test, on each kind of binaries that is installed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from embedded.harness import ServerDirectory, User, open_directory
from mailgres.embedded import EmbeddedError, binaries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]  # they look into /proc


class StartUser(Protocol):
    """Starts a user of the embedded server; it does not outlive the test."""

    def __call__(self, data_dir: Path, **options: Any) -> User: ...


# A run on one kind of binaries tests that one; `make test-all-postgres` makes a run for each.
CHOSEN = os.environ.get(binaries.CHOICE)


@pytest.fixture(params=[CHOSEN] if CHOSEN in ("system", "wheel") else ["system", "wheel"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return which PostgreSQL the test runs on."""
    kind: str = request.param
    monkeypatch.setenv(binaries.CHOICE, kind)
    try:
        binaries.find(os.environ)
    except EmbeddedError as error:
        pytest.skip(f"no binaries of the kind {kind!r} are installed: {error}")
    return kind


@pytest.fixture
def directory(kind: str) -> Iterator[ServerDirectory]:  # noqa: ARG001
    """An empty data directory, in which nothing may be left running."""
    directory = ServerDirectory(open_directory())
    yield directory
    try:
        directory.wait_until_quiet()
    finally:
        for pid in directory.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory.path)


@pytest.fixture
def start_user(directory: ServerDirectory) -> Iterator[StartUser]:  # noqa: ARG001
    """Start users, and see to it that none outlives the test."""
    users: list[User] = []

    def start(data_dir: Path, **options: Any) -> User:
        users.append(User(data_dir, **options))
        return users[-1]

    yield start
    for user in users:
        if user.process.poll() is None:
            user.kill()
        for stream in (user.process.stdin, user.process.stdout):
            if stream:
                stream.close()


@pytest.fixture
def closed_directory() -> Iterator[Path]:
    """A directory that only its owner can enter."""
    directory = open_directory()
    directory.chmod(0o700)
    yield directory
    shutil.rmtree(directory)
