"""Compare the repeatable objects of a database with `sql/`, and replace those that differ.

The work is done by functions in the database (`sql/25_schema`); what a migration does is therefore
the same as what the printed script does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import queries
from mailgres.schema.release import WORKS_SINCE, Release, version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.schema.sources import Sources, Wanted

QUERIES = queries.load("schema/objects.sql")
_LOCKS = {
    "function": "no lock on a table",
    "view": "ACCESS EXCLUSIVE on the view",
    "trigger": "SHARE ROW EXCLUSIVE on {table}",
    "comment": "SHARE UPDATE EXCLUSIVE on {table}",
}


@dataclass(frozen=True)
class Difference:
    """An object of the database that is not as `sql/` has it."""

    kind: str
    object: str
    state: str
    """missing, taken, outdated, changed or obsolete: see `sql/25_schema/20_compare.sql`."""

    @property
    def lock(self) -> str:
        """The strongest lock that replacing it takes."""
        words = self.object.split(" ")
        if self.kind == "comment" and words[1] in {"FUNCTION", "SCHEMA"}:
            return _LOCKS["function"]
        table = words[-1].rpartition(".")[0] if self.kind == "trigger" else words[-1]
        if self.kind == "comment" and words[1] == "COLUMN":
            table = table.rpartition(".")[0]
        return _LOCKS[self.kind].format(table=table)


def replace(connection: psycopg.Connection[Any], sources: Sources) -> int:
    """Make the repeatable objects as `sql/` has them; return how many were changed.

    The connection is in a transaction in which `migrations/before.sql` ran.
    """
    cursor = psycopg.Cursor(connection)
    if not is_installed(cursor, sources):
        for each in sources.machinery:
            cursor.execute(each.statement.encode())
    given = parameters(sources.wanted)
    row = cursor.execute(QUERIES["replace"], given).fetchone()
    cursor.execute(
        QUERIES["record_release"],
        given | {"version": version(), "works_since": WORKS_SINCE, "digest": sources.digest},
    )
    return int(row[0]) if row else 0


def is_installed(cursor: psycopg.Cursor[Any], sources: Sources) -> bool:
    """Return whether the functions that compare and replace are those of this package."""
    given = {
        "names": [each.name for each in sources.machinery],
        "bodies": [each.body for each in sources.machinery],
    }
    try:
        with cursor.connection.transaction():
            row = cursor.execute(QUERIES["is_installed"], given).fetchone()
    except psycopg.errors.UndefinedObject:  # the type of their argument
        return False
    return bool(row and row[0])


def compare(connection: psycopg.Connection[Any], wanted: Sequence[Wanted]) -> list[Difference]:
    """Return what differs; the database has the functions of this version."""
    rows = psycopg.Cursor(connection).execute(QUERIES["compare"], parameters(wanted)).fetchall()
    return [Difference(*row) for row in rows]


def current_release(connection: psycopg.Connection[Any]) -> Release | None:
    """Return the version of mailgres that migrated the database last."""
    row = psycopg.Cursor(connection).execute(QUERIES["release"]).fetchone()
    return Release(*row) if row else None


def remake_row_functions(connection: psycopg.Connection[Any]) -> None:
    """Replace the functions whose result is a row of a table by themselves, after a revision."""
    psycopg.Cursor(connection).execute(QUERIES["remake"])


def earlier_release(connection: psycopg.Connection[Any], target: str) -> Release | None:
    """Return the release that this database had, by its version or its revision."""
    row = psycopg.Cursor(connection).execute(QUERIES["earlier_release"], {"target": target})
    found = row.fetchone()
    return Release(*found) if found else None


def return_to(connection: psycopg.Connection[Any], release: Release) -> None:
    """Make the objects of an earlier release of this database again."""
    _about(connection, "return_to_release", release)


def record_return(connection: psycopg.Connection[Any], release: Release) -> None:
    """Record that the database has an earlier release again."""
    _about(connection, "record_return", release)


def _about(connection: psycopg.Connection[Any], query: str, release: Release) -> None:
    psycopg.Cursor(connection).execute(
        QUERIES[query], {"version": release.version, "revision": release.revision}
    )


def pending(connection: psycopg.Connection[Any], sources: Sources) -> list[Difference]:
    """Return what differs from the objects of the last migration; reads no catalog."""
    rows = psycopg.Cursor(connection).execute(QUERIES["release_objects"]).fetchall()
    there = {(kind, name): statement for kind, name, statement in rows}
    wanted = {(each.kind, each.name): each.statement for each in sources.wanted}
    found = [
        Difference(kind, f"{kind} {name}", "outdated" if (kind, name) in there else "missing")
        for (kind, name), statement in wanted.items()
        if there.get((kind, name)) != statement
    ]
    gone = (key for key in there if key not in wanted)
    return found + [Difference(kind, f"{kind} {name}", "obsolete") for kind, name in gone]


def parameters(wanted: Sequence[Wanted]) -> dict[str, Any]:
    """Return the objects as the parameters of the queries."""
    return {
        "kinds": [each.kind for each in wanted],
        "names": [each.name for each in wanted],
        "statements": [each.statement for each in wanted],
    }
