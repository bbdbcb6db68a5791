"""Migrate a database's schema to the version that this package needs.

alembic keeps the order and the version; what it runs is frozen SQL (`migrations/frozen`). A whole
upgrade is one transaction under an advisory lock, so it happens entirely or not at all, and any
number of deployments may call it at once. `migrations/env.py` opens that transaction.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from alembic import command, op
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from mailgres import resources
from mailgres.database import connect, describe, first_line
from mailgres.errors import MigrationFailed, NotMigrated

if TYPE_CHECKING:
    from collections.abc import Callable

    from alembic.runtime.migration import MigrationContext

VERSION_SCHEMA = "mailgres"
VERSION_TABLE = "schema_version"
UPGRADE = "Install that version, from a checkout or its wheel file"
"""The hint for a schema that is newer than this mailgres."""

# A view by that name would run its owner's functions as the role that reads it, and so would a
# policy; a table of another owner says nothing about our schema.
_FIND_VERSION = """
    SELECT FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n
      ON n.oid OPERATOR(pg_catalog.=) c.relnamespace AND n.nspowner OPERATOR(pg_catalog.=) c.relowner
    WHERE n.nspname OPERATOR(pg_catalog.=) 'mailgres' AND c.relname OPERATOR(pg_catalog.=) 'schema_version'
      AND c.relkind OPERATOR(pg_catalog.=) 'r' AND NOT c.relrowsecurity
"""  # noqa: E501
_READ_VERSION = "SELECT version_num FROM mailgres.schema_version"

# alembic keeps its current environment in global variables.
_alembic = threading.Lock()

_NOTHING_TO_DO = (psycopg.errors.DuplicateSchema.sqlstate, psycopg.errors.DuplicateTable.sqlstate)

_HINTS: dict[type[psycopg.Error], str] = {
    psycopg.errors.LockNotAvailable: (
        "Another migration or a long transaction holds a lock (pg_stat_activity shows it)."
        " Nothing was changed: run `mailgres migrate` again when it is over."
    ),
    psycopg.errors.InsufficientPrivilege: (
        "Nothing was changed. Migrate as the owner of the database, or have its administrator"
        " run what `mailgres migrate --sql` prints."
    ),
    psycopg.errors.DuplicateTable: (
        "Nothing was changed. mailgres needs this name in schema public: rename your table"
        " (ALTER TABLE … RENAME TO …) and run `mailgres migrate` again."
    ),
    psycopg.errors.DuplicateFunction: (
        "Nothing was changed. mailgres needs this name in schema public: rename your function"
        " (ALTER FUNCTION … RENAME TO …) and run `mailgres migrate` again."
    ),
}


@dataclass(frozen=True)
class Change:
    """The revision before a migration and the one after it; None stands for no schema."""

    before: str | None
    after: str | None


@dataclass(frozen=True)
class Status:
    """The revision of a database, and the one that this package needs."""

    current: str | None
    head: str
    known: bool

    @property
    def is_current(self) -> bool:
        """Whether the database has exactly the revision that the package needs."""
        return self.current == self.head


def upgrade(
    url: str | None,
    *,
    on_notice: Callable[[str], None] | None = None,
    directory: Path | None = None,
) -> Change:
    """Upgrade the database to the newest revision; do nothing if it has that already.

    `on_notice` gets the server's notices (a role that it may not create, for example).
    `directory` is alembic's, for tests.
    """
    return _run(url, command.upgrade, "head", on_notice, directory)


def downgrade(
    url: str | None,
    revision: str = "base",
    *,
    on_notice: Callable[[str], None] | None = None,
    directory: Path | None = None,
) -> Change:
    """Downgrade the database to `revision`; `base` removes mailgres and all its emails.

    Only the roles stay, because other databases of the cluster may use them.
    """
    return _run(url, command.downgrade, revision, on_notice, directory)


def current(url: str | None) -> str | None:
    """Return the revision of the database, or None without a schema of ours."""
    with connect(url, autocommit=True, application_name="mailgres migrate") as connection:
        try:
            if connection.execute(_FIND_VERSION).fetchone() is None:
                return None
            row = connection.execute(_READ_VERSION).fetchone()
        except psycopg.Error as error:
            raise _failure(error, "Cannot read the version of the schema") from error
    return row[0] if row else None


def status(url: str | None, *, directory: Path | None = None) -> Status:
    """Compare the database with this package."""
    scripts = ScriptDirectory.from_config(_config(directory))
    revision = current(url)
    known = revision is None or any(s.revision == revision for s in scripts.walk_revisions())
    return Status(revision, _head(scripts), known)


def check(url: str | None, *, directory: Path | None = None) -> None:
    """Raise NotMigrated unless the database has exactly the schema this package needs."""
    found = status(url, directory=directory)
    if found.is_current:
        return
    where = describe(url)
    if not found.known:
        raise _too_new(where, found.current)
    if found.current is None:
        raise NotMigrated(f"The database {where} has no mailgres schema")
    raise NotMigrated(
        f"The database {where} is at revision {found.current}, this mailgres needs {found.head}"
    )


def script(start: str | None = None, *, directory: Path | None = None) -> str:
    """Return the SQL of an upgrade from `start` (default: nothing) for an administrator to run.

    It is one transaction and writes alembic's version, so that `mailgres migrate` can continue.
    """
    config = _config(directory)
    head = _head(ScriptDirectory.from_config(config))
    config.output_buffer = buffer = io.StringIO()
    try:
        with _alembic:
            command.upgrade(config, f"{start}:head" if start else "head", sql=True)
    except CommandError as error:
        hint = "`mailgres migrate --check` shows the revision of a database."
        raise MigrationFailed(f"There is no revision {start!r} to start from", hint) from error
    title = f"-- mailgres: the schema from {start or 'nothing'} to {head}.\n"
    usage = "-- Run it as the owner of the database: psql -v ON_ERROR_STOP=1 -f this-file\n\n"
    return title + usage + buffer.getvalue()


def engine(url: str | None, on_notice: Callable[[str], None] | None = None) -> sqlalchemy.Engine:
    """Return an engine for alembic; psycopg reads the URL, so that libpq's rules apply."""

    def open_connection() -> psycopg.Connection:
        connection = connect(url, application_name="mailgres migrate")
        # For the first statements of SQLAlchemy, in the transaction that this starts.
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        if on_notice is not None:
            connection.add_notice_handler(lambda notice: _pass_on(notice, on_notice))
        return connection

    return sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=open_connection,
        poolclass=sqlalchemy.NullPool,
        use_native_hstore=False,
    )


def run_frozen(name: str) -> None:
    """Run a file of `migrations/frozen`; for the revisions in `migrations/versions`."""
    context = op.get_context()
    if context.script is None:
        raise RuntimeError("a revision runs inside alembic's environment only")
    text = (Path(context.script.dir) / "frozen" / name).read_text(encoding="utf-8")
    try:
        run_sql(context, text)
    except psycopg.Error as error:
        raise _failure(error, _location(name, text, error)) from error


def run_sql(context: MigrationContext, text: str) -> None:
    """Run statements unchanged, or print them.

    `op.execute` would take `:name` in a comment for a parameter, and SQLAlchemy's driver-level
    execute would take a `%`; the driver itself, called without parameters, changes nothing.
    """
    if context.as_sql:
        context.impl.static_output(text)
        return
    if context.connection is None:
        raise RuntimeError("a migration that is not printed needs a connection")
    driver = context.connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError("mailgres migrates through psycopg only")
    # A cursor that reads text may send several statements in one message; a binary one may not.
    psycopg.Cursor(driver).execute(text.encode())


def _run(
    url: str | None,
    act: Callable[[Config, str], None],
    revision: str,
    on_notice: Callable[[str], None] | None,
    directory: Path | None,
) -> Change:
    config = _config(directory)
    with engine(url, on_notice).connect() as connection:
        config.attributes["connection"] = connection
        try:
            with _alembic:
                act(config, revision)
        except (psycopg.Error, sqlalchemy.exc.DBAPIError) as error:
            raise _failure(error, f"Cannot migrate {describe(url)}") from error
        except CommandError as error:
            raise _unknown_revision(url, revision, error, directory) from error
    before, after = config.attributes["change"]
    return Change(*(heads[0] if heads else None for heads in (before, after)))


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


def head() -> str:
    """Return the revision that this package needs."""
    return _head(ScriptDirectory.from_config(_config(None)))


def _head(scripts: ScriptDirectory) -> str:
    head = scripts.get_current_head()
    if head is None:
        raise MigrationFailed("This mailgres carries no migrations", "Reinstall the package.")
    return head


def _failure(error: Exception, where: str) -> MigrationFailed:
    """Return an error with one line on what failed, and one on what to do."""
    cause = getattr(error, "orig", None) or error
    hint = next((text for kind, text in _HINTS.items() if isinstance(cause, kind)), None)
    if isinstance(cause, psycopg.errors.ObjectNotInPrerequisiteState):
        hint = cause.diag.message_hint  # of before.sql, which knows best
    detail = cause.diag.message_detail if isinstance(cause, psycopg.Error) else None
    # The detail names the conflicting object.
    more = f" ({detail.splitlines()[0]})" if detail else ""
    return MigrationFailed(f"{where}: {first_line(cause)}{more}", hint)


def _location(name: str, text: str, error: psycopg.Error) -> str:
    """Return the place in a frozen file that the server reports."""
    position = error.diag.statement_position
    if not position:
        return name
    return f"{name}, line {text.count(chr(10), 0, int(position)) + 1}"


def _unknown_revision(
    url: str | None, revision: str, error: CommandError, directory: Path | None
) -> MigrationFailed | NotMigrated:
    found = status(url, directory=directory)
    if not found.known:
        return _too_new(describe(url), found.current)
    return MigrationFailed(f"Cannot migrate to {revision}: {first_line(error)}")


def _too_new(where: str, revision: str | None) -> NotMigrated:
    return NotMigrated(
        f"The database {where} is at revision {revision}, which this mailgres does not know",
        f"A newer mailgres migrated it. {UPGRADE}.",
    )
