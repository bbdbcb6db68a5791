"""Move the queue of a shape, as tests do it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from adopt.test_counting import mapped
from mailgres import database
from mailgres.adopt import Options, move, undo
from mailgres.adopt.catalog import Catalog
from mailgres.adopt.mapping import Queue

ALL = Options(old="send", accept=True)
CONTENT = '{"en": {"subject": "Hello", "text": "Hello."}}'


def moved(url: str, shape: str, options: Options = ALL) -> list[str]:
    """Move the queue of a shape, with the answers of a person and templates of ours."""
    with database.connect(url, autocommit=True) as connection:
        mapping, catalog = mapped(connection, shape)
        for queue in mapping.queues:
            push_templates(connection, queue, catalog)
        return list(move(connection, mapping, options))


def push_templates(connection: psycopg.Connection[Any], queue: Queue, catalog: Catalog) -> None:
    """Have a template of ours for each that a row names."""
    source, table = queue.source("template_type"), catalog.table(queue.table)
    if source is None or source.path or table is None:
        return
    query = sql.SQL(
        """SELECT mailgres.push_template(t.name, {})
           FROM (SELECT DISTINCT {}::text AS name FROM {}) t
           WHERE t.name ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]*$'"""
    ).format(
        sql.Literal(CONTENT),
        sql.Identifier(source.column),
        sql.Identifier(table.schema, table.name),
    )
    connection.execute(query)


def undone(url: str) -> list[str]:
    """Give the queue back."""
    with database.connect(url, autocommit=True) as connection:
        return list(undo(connection))


def value(connection: psycopg.Connection[Any], query: str, *given: object) -> Any:
    """The one value that a query returns."""
    row = connection.execute(query.encode(), given or None).fetchone()
    assert row is not None
    return row[0]


def emails(connection: psycopg.Connection[Any]) -> dict[str, set[str]]:
    """The statuses of our emails by row of the old table."""
    rows = connection.execute(
        """SELECT r.old_id, array_agg(q.status::text) FROM mailgres_adopted.adopted_rows r
           JOIN email_queue q ON q.id = r.email_id GROUP BY r.old_id"""
    )
    return {row[0]: set(row[1]) for row in rows}
