"""What the database knows about moves: the queues that were adopted, and how far each has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row
from psycopg.sql import SQL, Composable, Composed, Identifier

from mailgres import queries
from mailgres.adopt.catalog import quoted
from mailgres.adopt.generated import SCHEMA

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

QUERIES = queries.load("adopt/moves.sql")


@dataclass(frozen=True, slots=True)
class Adopted:
    """A queue that was adopted, or is being adopted or given back."""

    number: int
    schema_name: str
    table_name: str
    state: str
    jobs: list[int]
    since: datetime

    @property
    def full_name(self) -> str:
        """Return schema and name as SQL."""
        return f"{quoted(self.schema_name)}.{quoted(self.table_name)}"

    @property
    def base(self) -> Identifier:
        """Return the old table, where it is now."""
        return Identifier(SCHEMA, self.table_name)

    @property
    def view(self) -> Identifier:
        """Return the view, which has the old name."""
        return Identifier(self.schema_name, self.table_name)


def ask(
    connection: psycopg.Connection[Any],
    query: str,
    names: dict[str, Composable] | None = None,
    **parameters: object,
) -> list[dict[str, Any]]:
    """Run a named query and return its rows."""
    text: SQL | Composed = SQL(QUERIES[query])
    if names is not None:
        text = SQL(QUERIES[query]).format(**names)
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(text, parameters or None)
        return cursor.fetchall() if cursor.description else []


def run(connection: psycopg.Connection[Any], statements: SQL | Composed) -> None:
    """Run statements that return nothing; in this format the server takes several."""
    connection.cursor().execute(statements, binary=False)


def adopted(connection: psycopg.Connection[Any]) -> list[Adopted]:
    """Return the queues that were adopted."""
    (state,) = ask(connection, "has_state")
    if not state["found"]:
        return []
    return [Adopted(**row) for row in ask(connection, "queues")]


def switch_jobs(connection: psycopg.Connection[Any], jobs: list[int], *, active: bool) -> None:
    """Switch jobs of pg_cron on or off; an old version of it has the table alone."""
    if not jobs:
        return
    (alter,) = ask(connection, "has_alter_job")
    for job in jobs:
        ask(connection, "alter_job" if alter["found"] else "update_job", job=job, active=active)
