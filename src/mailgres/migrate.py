"""Migrate a database's schema to the version that this package needs.

alembic keeps the order of the revisions, which are frozen SQL (`migrations/frozen`); after them,
`mailgres.schema` replaces the functions, views, triggers and comments that differ from `sql/`. A
whole upgrade is one transaction under an advisory lock, so it happens entirely or not at all, and
any number of deployments may call it at once. `migrations/env.py` opens that transaction.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from mailgres import resources
from mailgres.database import connect, describe, first_line
from mailgres.errors import MigrationFailed
from mailgres.schema import objects
from mailgres.schema.failures import failure
from mailgres.schema.script import Around, Revision
from mailgres.schema.script import script as printed
from mailgres.schema.sources import Sources, own
from mailgres.schema.status import UPGRADE, Status, check, not_migrated, read, too_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.schema.release import Release

__all__ = [
    "UPGRADE",
    "Change",
    "Status",
    "check",
    "current",
    "differences",
    "downgrade",
    "not_migrated",
    "script",
    "status",
    "upgrade",
]

VERSION_SCHEMA = "mailgres"
VERSION_TABLE = "schema_version"

_SEARCH_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"

# alembic keeps its current environment in global variables.
_alembic = threading.Lock()

_NOTHING_TO_DO = (psycopg.errors.DuplicateSchema.sqlstate, psycopg.errors.DuplicateTable.sqlstate)

LOCK_ATTEMPTS = 30
"""How many attempts a migration makes if it cannot get a lock within 100 ms."""
LOCK_PAUSE_SECONDS = 0.5
"""How long others have the tables to themselves between two attempts."""


@dataclass(frozen=True)
class Change:
    """The revision before a migration and the one after it; None stands for no schema."""

    before: str | None
    after: str | None
    replaced: int = 0
    """How many functions, views, triggers and comments were created, replaced or dropped."""


def upgrade(
    url: str | None,
    *,
    on_notice: Callable[[str], None] | None = None,
    directory: Path | None = None,
    sources: Sources | None = None,
) -> Change:
    """Upgrade the database to this version; do nothing if it has that already.

    `on_notice` gets the server's notices (a role that it may not create, for example).
    `directory` is alembic's, and `sources` what is read from `sql/`, for tests.
    """
    found = status(url, directory=directory, sources=sources)
    if found.is_newer:
        raise too_new(describe(url), found)
    return _run(url, command.upgrade, "head", on_notice, directory, sources=sources)


def downgrade(
    url: str | None,
    target: str = "base",
    *,
    on_notice: Callable[[str], None] | None = None,
    directory: Path | None = None,
) -> Change:
    """Return to a version or revision that the database had before.

    `base` removes mailgres and all its emails. Only the roles stay, because other databases of the
    cluster may use them.
    """
    found = status(url, directory=directory)
    if not found.known:
        raise too_new(describe(url), found)
    if target == "base":
        return _run(url, command.downgrade, target, on_notice, directory)
    with connect(url, application_name="mailgres migrate") as connection:
        connection.execute(_SEARCH_PATH)
        earlier = objects.earlier_release(connection, target) if found.release else None
    if earlier is None:
        raise MigrationFailed(
            f"The database {describe(url)} never had the version or revision {target!r}",
            "A downgrade returns to what a database had: mailgres.schema_releases lists it.",
        )
    return _run(url, command.downgrade, earlier.revision, on_notice, directory, earlier=earlier)


def current(url: str | None) -> str | None:
    """Return the revision of the database, or None without a schema of ours."""
    return read(url).current


def status(
    url: str | None, *, directory: Path | None = None, sources: Sources | None = None
) -> Status:
    """Compare the database with this package, without reading the catalog."""
    return read(url, directory=directory, digest=sources.digest if sources else None)


def differences(
    url: str | None, *, directory: Path | None = None, sources: Sources | None = None
) -> tuple[list[str], list[objects.Difference]]:
    """Return the revisions that a migration would run, and the objects that it would replace."""
    given = sources or own()
    found = status(url, directory=directory, sources=given)
    if found.is_newer:
        raise too_new(describe(url), found)
    names = [each.name for each in _revisions(_config(directory))]
    if found.current is None:
        return names, [
            objects.Difference(w.kind, f"{w.kind} {w.name}", "missing") for w in given.wanted
        ]
    missing = names[names.index(found.current) + 1 :]
    with connect(url, application_name="mailgres migrate") as connection:
        connection.execute(_SEARCH_PATH)
        try:
            if not found.is_current:
                return missing, objects.pending(connection, given)
            return missing, objects.compare(connection, given.wanted)
        except psycopg.Error as error:
            raise failure(error, "Cannot compare the schema") from error


def locks(revision: str, *, directory: Path | None = None) -> str:
    """Return what a revision says about the locks that it takes, in a line `-- locks: …`."""
    found = re.search(
        r"^-- locks: (.*)$", _text(_config(directory), "frozen", f"{revision}.up.sql"), re.MULTILINE
    )
    return found[1] if found else "locks the tables that it creates"


def script(
    start: str | None = None, *, directory: Path | None = None, sources: Sources | None = None
) -> str:
    """Return the SQL of an upgrade from `start` (default: nothing) for an administrator to run.

    It is one transaction and writes alembic's version, so that `mailgres migrate` can continue.
    """
    config = _config(directory)
    revisions = _revisions(config)
    if start and start not in [each.name for each in revisions]:
        hint = "`mailgres migrate --check` shows the revision of a database."
        raise MigrationFailed(f"There is no revision {start!r} to start from", hint)
    around = Around(_text(config, "before.sql"), _text(config, "before_commit.sql"))
    return printed(around, revisions, start, sources or own())


def engine(url: str | None, on_notice: Callable[[str], None] | None = None) -> sqlalchemy.Engine:
    """Return an engine for alembic; psycopg reads the URL, so that libpq's rules apply."""

    def open_connection() -> psycopg.Connection:
        connection = connect(url, application_name="mailgres migrate")
        # For the first statements of SQLAlchemy, in the transaction that this starts.
        connection.execute(_SEARCH_PATH)
        if on_notice is not None:
            connection.add_notice_handler(lambda notice: _pass_on(notice, on_notice))
        return connection

    return sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=open_connection,
        poolclass=sqlalchemy.NullPool,
        use_native_hstore=False,
    )


def _run(
    url: str | None,
    act: Callable[[Config, str], None],
    revision: str,
    on_notice: Callable[[str], None] | None,
    directory: Path | None,
    *,
    sources: Sources | None = None,
    earlier: Release | None = None,
) -> Change:
    """Run a migration, again if it could not get a lock."""
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        config = _config(directory)
        config.attributes.update(sources=sources, release=earlier)
        try:
            return _run_once(url, config, lambda given: act(given, revision), on_notice)
        except MigrationFailed as error:
            cause = getattr(error.__cause__, "orig", error.__cause__)
            if not isinstance(cause, psycopg.errors.LockNotAvailable) or attempt == LOCK_ATTEMPTS:
                raise
        except CommandError as error:
            raise MigrationFailed(f"Cannot migrate to {revision}: {first_line(error)}") from error
        time.sleep(LOCK_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _run_once(
    url: str | None,
    config: Config,
    act: Callable[[Config], None],
    on_notice: Callable[[str], None] | None,
) -> Change:
    with engine(url, on_notice).connect() as connection:
        config.attributes["connection"] = connection
        try:
            with _alembic:
                act(config)
        except (psycopg.Error, sqlalchemy.exc.DBAPIError) as error:
            raise failure(error, f"Cannot migrate {describe(url)}") from error
    before, after, replaced = config.attributes["change"]
    return Change(before[0] if before else None, after[0] if after else None, replaced)


def _revisions(config: Config) -> list[Revision]:
    """Return all revisions, the oldest first."""
    found = list(ScriptDirectory.from_config(config).walk_revisions())
    return [
        Revision(
            each.revision,
            each.down_revision if isinstance(each.down_revision, str) else None,
            _text(config, "frozen", f"{each.revision}.up.sql"),
        )
        for each in reversed(found)
    ]


def _text(config: Config, *parts: str) -> str:
    root = config.get_main_option("script_location") or ""
    return Path(root, *parts).read_text(encoding="utf-8")


def _pass_on(notice: psycopg.errors.Diagnostic, on_notice: Callable[[str], None]) -> None:
    """Pass on a notice that a person should read: not that `IF NOT EXISTS` had nothing to do."""
    if notice.sqlstate not in _NOTHING_TO_DO:
        on_notice(notice.message_primary or "")


def _config(directory: Path | None) -> Config:
    config = Config()
    location = str(directory or resources.migrations_directory())
    # ConfigParser reads % as the start of a placeholder.
    config.set_main_option("script_location", location.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
