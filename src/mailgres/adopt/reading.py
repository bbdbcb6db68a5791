"""Read the catalog of a foreign database, and a few of its rows, in a read-only transaction."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from mailgres import queries
from mailgres.adopt.catalog import (
    Catalog,
    Column,
    Constraint,
    Function,
    Job,
    Policy,
    Rows,
    Table,
    Trigger,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERIES = queries.load("adopt/catalog.sql")
OURS = ("email_queue", "email_templates", "email_logs", "email_events", "email_suppressions")
EXCLUDED = (
    "information_schema",
    "mailgres",
    "mailgres_adopted",
    *("auth", "storage", "realtime", "vault", "extensions", "graphql", "graphql_public", "net"),
    *("supabase_functions", "supabase_migrations", "pgsodium", "cron"),
)
"""Schemas of extensions and services, and our own. pgmq's tables may be the queue: not here."""
FEW = 40
"""A column with more values than this is no status."""


class Reader:
    """Asks the catalog; rows are read only where the user may read them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.unread: list[str] = []
        """Tables whose rows could not be read."""

    def ask(self, query: str, **parameters: object) -> list[dict[str, Any]]:
        """Run a named query and return its rows."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(QUERIES[query], parameters or None)
            return cursor.fetchall()

    def catalog(self) -> Catalog:
        """Read what the catalog says about all tables that are not ours."""
        (server,) = self.ask("server")
        jobs, no_jobs = self._optional("jobs", "cron.job", exists=server["cron"])
        pgmq, no_pgmq = self._optional("pgmq", "pgmq.meta", exists=server["pgmq"])
        given = {"excluded": list(EXCLUDED)}
        return Catalog(
            tables=self._tables(installed=server["installed"]),
            functions=tuple(Function(**_values(row)) for row in self.ask("functions", **given)),
            triggers=tuple(Trigger(**_values(row, "oid")) for row in self.ask("triggers", **given)),
            jobs=tuple(Job(**row) for row in jobs),
            pgmq=tuple(row["name"] for row in pgmq),
            timezone=server["timezone"],
            installed=server["installed"],
            unreadable=(*no_jobs, *no_pgmq),
        )

    def rows(self, table: Table, few: tuple[str, ...] = ()) -> Rows:
        """Read a sample of a table, and the values of the columns in `few`.

        A table that cannot be read, or not in time, is explained by the catalog alone.
        """
        if not table.readable:
            return Rows()
        try:
            with self.connection.transaction():
                return self._rows(table, few)
        except psycopg.OperationalError as error:
            if not isinstance(error, psycopg.errors.QueryCanceled):
                raise
        except psycopg.DatabaseError:
            pass
        self.unread.append(table.full_name)
        return Rows()

    def _rows(self, table: Table, few: tuple[str, ...]) -> Rows:
        target = sql.Identifier(table.schema, table.name)
        found = self._composed("sample", table=target)
        values = {}
        for name in few:
            rows = self._composed("statuses", table=target, column=sql.Identifier(name))
            if len(rows) <= FEW:
                values[name] = {row["value"]: row["rows"] for row in rows}
        return Rows(tuple(row["row"] for row in found), values)

    def _composed(self, query: str, **names: sql.Composable) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(sql.SQL(QUERIES[query]).format(**names))
            return cursor.fetchall()

    def _tables(self, *, installed: bool) -> tuple[Table, ...]:
        found = self.ask("tables", excluded=list(EXCLUDED), ours=list(OURS), installed=installed)
        oids = {"tables": [row["oid"] for row in found]}
        names = ("columns", "constraints", "indexes", "policies", "grants")
        parts = {name: self.ask(name, **oids) for name in names}
        return tuple(_table(row, parts) for row in found)

    def _optional(
        self, query: str, name: str, *, exists: bool
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Run a query on a table that may be absent or closed to the user."""
        if not exists:
            return [], ()
        try:
            with self.connection.transaction():
                return self.ask(query), ()
        except psycopg.errors.InsufficientPrivilege:
            return [], (name,)


@contextmanager
def reading(connection: psycopg.Connection[Any]) -> Iterator[Reader]:
    """Yield a reader for one read-only transaction."""
    with connection.transaction(force_rollback=True):
        connection.execute(QUERIES["limits"])
        yield Reader(connection)


def _table(row: dict[str, Any], parts: dict[str, list[dict[str, Any]]]) -> Table:
    oid = row["oid"]
    own = {name: [each for each in rows if each["oid"] == oid] for name, rows in parts.items()}
    return Table(
        **_values(row, "oid"),
        columns=tuple(Column(**_values(each, "oid", "enum")) for each in own["columns"]),
        constraints=tuple(_constraint(each) for each in own["constraints"]),
        references=tuple(
            _constraint(each)
            for each in parts["constraints"]
            if each["kind"] == "f" and each["target_oid"] == oid and each["oid"] != oid
        ),
        indexes=tuple(each["definition"] for each in own["indexes"]),
        policies=tuple(Policy(**_values(each, "oid")) for each in own["policies"]),
        grants={each["role"]: tuple(each["privileges"]) for each in own["grants"]},
    )


def _constraint(row: dict[str, Any]) -> Constraint:
    return Constraint(**_values(row, "oid", "target_oid"))


def _values(row: dict[str, Any], *without: str) -> dict[str, Any]:
    """Return a row as arguments: lists become tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name not in without
    }
