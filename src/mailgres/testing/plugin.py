"""The plugin of pytest. Until a test uses one of its fixtures it imports nothing but pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mailgres.testing.async_outbox import AsyncOutbox
    from mailgres.testing.databases import Databases
    from mailgres.testing.outbox import Outbox

_SCOPE = "mailgres_database_scope"
_TEMPLATES = "mailgres_templates"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of pytest's configuration file."""
    parser.addini(
        _SCOPE,
        "'function': every test has a database of its own; 'session': all share one, which the"
        " outbox empties before each test.",
        default="function",
    )
    parser.addini(
        _TEMPLATES, "Directories of email templates that the databases have.", type="paths"
    )


def _scope(fixture_name: str, config: pytest.Config) -> Literal["function", "session"]:
    del fixture_name
    given = config.getini(_SCOPE)
    if given not in ("function", "session"):
        raise pytest.UsageError(f"{_SCOPE} is {given!r}: give function or session.")
    return given  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def mailgres_prepare() -> Callable[[str], None] | None:
    """Return a function that is called once with the URL of the migrated database: override it.

    Run the application's own migrations there, and close all connections.
    """
    return None


@pytest.fixture(scope="session")
def mailgres_settings() -> Mapping[str, str]:
    """Return settings of the worker that sends, such as `from_email`: override it."""
    return {}


@pytest.fixture(scope="session")
def mailgres_databases(
    request: pytest.FixtureRequest, mailgres_prepare: Callable[[str], None] | None
) -> Iterator[Databases]:
    """Yield the databases of this run, on the server of DATABASE_URL or on an embedded one."""
    from mailgres.testing.databases import databases  # noqa: PLC0415 - loaded when it is used

    templates = [Path(path) for path in request.config.getini(_TEMPLATES)]
    with databases(templates=templates, prepare=mailgres_prepare) as made:
        yield made


@pytest.fixture(scope=_scope)
def mailgres_database(mailgres_databases: Databases) -> Iterator[str]:
    """Yield the URL of a migrated database; `mailgres_database_scope` says how long it lives."""
    with mailgres_databases.database() as url:
        yield url


@pytest.fixture
def outbox(mailgres_database: str, mailgres_settings: Mapping[str, str]) -> Iterator[Outbox]:
    """Yield the emails that the test enqueues, and what becomes of them."""
    from mailgres.testing.outbox import Outbox  # noqa: PLC0415 - loaded when it is used

    with Outbox(mailgres_database, mailgres_settings) as opened:
        opened.clear()
        yield opened


@pytest.fixture
def async_outbox(outbox: Outbox) -> AsyncOutbox:
    """Return the outbox, with methods to await."""
    from mailgres.testing.async_outbox import AsyncOutbox  # noqa: PLC0415 - loaded when it is used

    return AsyncOutbox(outbox)
