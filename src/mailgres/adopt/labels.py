"""How the old queue writes each status: a mapping compares without case, a view must not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.adopt.reading import reading
from mailgres.adopt.statuses import found_values, normal

if TYPE_CHECKING:
    import psycopg

    from mailgres.adopt.catalog import Table
    from mailgres.adopt.mapping import Queue

FINAL = ("sent", "failed_final", "cancelled")


def labels(connection: psycopg.Connection[Any], queue: Queue, table: Table) -> dict[str, str]:
    """Return a status for each meaning, in the spelling that most rows have."""
    source = queue.source("status")
    if source is None or source.path:
        return {}
    with reading(connection) as reader:
        rows = reader.rows(table, (source.column,))
    counted = rows.values.get(source.column, {})
    seen = sorted(found_values(table, source.column, rows), key=lambda each: -counted.get(each, 0))
    found: dict[str, str] = {}
    for value in (*seen, *queue.statuses):
        meaning = queue.statuses.get(normal(value))
        if meaning is not None:
            found.setdefault(meaning, value)
    return found


def finals(queue: Queue) -> list[str]:
    """Return the statuses that no email leaves, in the form in which rows are compared."""
    return [status for status, meaning in queue.statuses.items() if meaning in FINAL]
