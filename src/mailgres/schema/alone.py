"""Revisions that cannot be part of a transaction: indexes of large tables, made concurrently.

Their file begins with the line `-- not in a transaction`. Its statements run one by one, and all of
them again if a migration was interrupted. The index that an interrupted CREATE INDEX CONCURRENTLY
leaves behind is invalid, and is dropped first. The first migration of a database, and one that
removes mailgres, runs them in its transaction: nobody uses the tables.
"""

from __future__ import annotations

import re

from mailgres import queries
from mailgres.errors import MigrationFailed
from mailgres.schema.sources import split

FIRST_LINE = "-- not in a transaction\n"
_INDEX = re.compile(
    r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (?P<name>\w+) ON (?P<schema>\w+)\.\w+"
)
_DROP = re.compile(r"DROP INDEX CONCURRENTLY IF EXISTS \w+\.\w+;\Z")
QUERIES = queries.load("schema/alone.sql")


def statements(name: str, text: str) -> list[tuple[str, str | None]]:
    """Return the statements of such a file, with the name of the index that each creates."""
    found = []
    for statement in split(text):
        index = _INDEX.match(statement)
        if index is None and _DROP.match(statement) is None:
            raise MigrationFailed(
                f"{name}: a statement outside of a transaction cannot be run twice",
                "It has to be CREATE INDEX CONCURRENTLY IF NOT EXISTS … ON schema.table, or DROP"
                " INDEX CONCURRENTLY IF EXISTS schema.name.",
            )
        found.append((statement, f"{index['schema']}.{index['name']}" if index else None))
    return found


def together(statement: str) -> str:
    """Return such a statement for a transaction."""
    return statement.replace(" INDEX CONCURRENTLY ", " INDEX ", 1)


def printed(name: str, text: str) -> str:
    """Return such a file for the printed script."""
    parts = []
    for statement, index in statements(name, text):
        if index:
            parts.append(QUERIES["drop_invalid"].format(index=index))
        parts.append(statement)
    return "\n\n".join(parts)
