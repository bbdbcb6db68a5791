"""Which schema a database has, and whether this version of mailgres works with it.

A worker asks at every start, so this needs no part of alembic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import resources
from mailgres.database import connect, describe
from mailgres.errors import MigrationFailed, NotMigrated
from mailgres.schema import objects, release
from mailgres.schema.failures import failure

if TYPE_CHECKING:
    from pathlib import Path

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


@dataclass(frozen=True)
class Status:
    """The revision of a database, and the one that this package needs."""

    current: str | None
    head: str
    known: bool
    release: release.Release | None = None
    """The version of mailgres that migrated the database last."""
    digest: str = ""
    """The hash of the functions, views, triggers and comments of this package."""

    @property
    def is_current(self) -> bool:
        """Whether the database has exactly the schema of this package."""
        return self.current == self.head and (
            self.release is not None and self.release.digest == self.digest
        )

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of mailgres migrated the database."""
        if not self.known:
            return True
        return self.release is not None and self.is_older_than(self.release.version)

    @property
    def works(self) -> bool:
        """Whether this version works with the schema: its own, or a newer one that allows it."""
        if self.is_current:
            return True
        found = self.release
        return self.is_newer and found is not None and not self.is_older_than(found.works_since)

    @staticmethod
    def is_older_than(version: str) -> bool:
        """Return whether this package is older than a version."""
        return release.order(release.version()) < release.order(version)


def read(url: str | None, *, directory: Path | None = None, digest: str | None = None) -> Status:
    """Compare a database with this package; tests give another directory of migrations."""
    with connect(url, autocommit=True, application_name="mailgres migrate") as connection:
        try:
            return look(connection, directory=directory, digest=digest)
        except psycopg.Error as error:
            raise failure(error, "Cannot read the version of the schema") from error


def look(
    connection: psycopg.Connection[Any],
    *,
    directory: Path | None = None,
    digest: str | None = None,
) -> Status:
    """Compare the database of a connection with this package; reads our own tables only."""
    known = resources.revisions(directory)
    if not known:
        raise MigrationFailed("This mailgres carries no migrations", "Reinstall the package.")
    revision, found = _recorded(connection)
    is_known = revision is None or revision in known
    return Status(revision, known[-1], is_known, found, digest or resources.sql_digest())


def _recorded(
    connection: psycopg.Connection[Any],
) -> tuple[str | None, release.Release | None]:
    """Return the revision of a database, and the release that migrated it last."""
    if connection.execute(_FIND_VERSION).fetchone() is None:
        return None, None
    row = connection.execute(_READ_VERSION).fetchone()
    if row is None:
        return None, None
    try:
        return row[0], objects.current_release(connection)
    except psycopg.errors.UndefinedTable:
        return row[0], None


def check(url: str | None, *, directory: Path | None = None) -> None:
    """Raise NotMigrated unless this version works with the schema of the database."""
    found = read(url, directory=directory)
    if not found.works:
        raise not_migrated(describe(url), found)


def not_migrated(where: str, found: Status) -> NotMigrated:
    """Return the error for a schema that this version does not work with."""
    if found.is_newer:
        return too_new(where, found)
    if found.current is None:
        return NotMigrated(f"The database {where} has no mailgres schema")
    if found.current != found.head:
        return NotMigrated(
            f"The database {where} is at revision {found.current}, this mailgres needs {found.head}"
        )
    by = found.release.version if found.release else "an unknown version"
    return NotMigrated(
        f"The database {where} has the functions of mailgres {by}, this is {release.version()}"
    )


def too_new(where: str, found: Status) -> NotMigrated:
    """Return the error for a schema of a newer version."""
    by = f" by mailgres {found.release.version}" if found.release else ""
    what = "does not know" if not found.known else "does not work with"
    return NotMigrated(
        f"The database {where} was migrated to revision {found.current}{by}, which this mailgres"
        f" ({release.version()}) {what}",
        f"A newer mailgres migrated it. {UPGRADE}.",
    )
