"""A real PostgreSQL for every test that asks: its own database, cloned from a migrated one."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import hypothesis
import psycopg
import pytest

import freeze
from mailgres import embedded, migrate, resources
from support import privacy
from support.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from support.not_run import pytest_deselected, pytest_terminal_summary, pytest_testnodedown
from support.postgres import GIVEN_URL, Connect, Server, database_name, open_server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pytest_deselected", "pytest_terminal_summary", "pytest_testnodedown"]

CONNECTION_VARIABLES = (
    "DATABASE_URL",
    "SUPABASE_DB_URL",
    "PGHOST",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
)
# Nobody mourns the last transactions of a test after a power cut. (fsync stays on, because the
# embedded server insists on it.)
FASTER = {"synchronous_commit": "off", "full_page_writes": "off"}
# None by default, as many applications have it; tests of two-phase commit need some.
PREPARED = {"max_prepared_transactions": "20"}

# A shell lets what it starts in the background ignore SIGINT, and children inherit that: the
# programs that tests interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples in every run: what turns a run red is a change. The profile `random` has others.
hypothesis.settings.register_profile("fixed", derandomize=True)
hypothesis.settings.register_profile("random", derandomize=False)
hypothesis.settings.load_profile("fixed")


def _memory() -> Path | None:
    """Memory, if there is enough: a database for every test costs a disk a second or so."""
    memory = Path("/dev/shm")  # noqa: S108 - the directories below it are private
    if not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return None
    return memory if shutil.disk_usage(memory).free > 4 * 1024**3 else None


# Every server that a test starts is there; pytest's own directories, which stay, are not.
if memory := _memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = str(memory)


@pytest.fixture(autouse=True)
def _no_database_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test reach a database that the developer's shell happens to name."""
    for name in CONNECTION_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_terminal_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables have their natural width, whatever terminal the developer has."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _private_logs() -> Iterator[None]:
    """Let no test pass in which a log line has a recipient, a subject, a payload or a secret."""
    with contextmanager(privacy.watch)():
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The PostgreSQL of this run: the one DATABASE_URL names, else an embedded one."""
    if GIVEN_URL:
        with open_server(GIVEN_URL) as given:
            yield given
        return
    # Not pytest's own directory: below it, the account that root's server runs as cannot enter.
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        with (
            embedded.server(Path(directory), settings=FASTER | PREPARED) as url,
            open_server(url) as started,
        ):
            yield started


@pytest.fixture(scope="session")
def migrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The migrations, with `sql/` as it is now.

    While `sql/` is being changed, the frozen copy is behind; the tests then run on what is
    written, and only the test of the frozen copy asks for `make freeze`.
    """
    directory = resources.migrations_directory()
    if missing := freeze.missing_revision(resources.sql_directory(), directory / "frozen"):
        pytest.fail(missing, pytrace=False)
    if not freeze.is_stale(resources.sql_directory(), directory / "frozen"):
        return directory
    copy = tmp_path_factory.mktemp("migrations") / "migrations"
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    freeze.freeze(resources.sql_directory(), copy / "frozen")
    return copy


@pytest.fixture(scope="session")
def template(server: Server, migrations: Path) -> Iterator[str]:
    """The name of a migrated database that nobody is connected to."""
    with server.database() as url:
        with server.one_at_a_time():
            migrate.upgrade(url, directory=migrations)
        with psycopg.connect(url, autocommit=True) as admin:
            # Its clones are copies, which would be quarantined.
            admin.execute("SELECT mailgres.release_quarantine(p_anywhere => true)")
        yield database_name(url)


@pytest.fixture
def database_url(server: Server, template: str) -> Iterator[str]:
    """The URL of a migrated database of the test's own."""
    with server.database(template) as url:
        yield url


@pytest.fixture
def empty_database_url(server: Server) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    with server.database() as url:
        yield url


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Open connections, by default to the test's migrated database; they close with the test."""
    with ExitStack() as stack:

        def open_connection(
            url: str | None = None, *, autocommit: bool = True
        ) -> psycopg.Connection:
            target = url or request.getfixturevalue("database_url")
            connection = psycopg.connect(target, autocommit=autocommit)
            stack.callback(connection.close)
            return connection

        yield open_connection


@pytest.fixture
def conn(connect: Connect) -> psycopg.Connection:
    """A connection in autocommit mode to the test's migrated database."""
    return connect()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
