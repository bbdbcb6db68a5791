"""Count what would become of the rows of a foreign queue. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg.sql import SQL, Composed, Literal

from mailgres import database
from mailgres.adopt.checking import answered, check
from mailgres.adopt.expressions import QUERIES, Expressions, log_parts, part
from mailgres.adopt.files import InvalidMapping
from mailgres.adopt.reading import reading

if TYPE_CHECKING:
    from mailgres.adopt.catalog import Catalog
    from mailgres.adopt.mapping import Mapping, Queue

OUTCOMES: Final = {
    "waiting": "would be sent",
    "scheduled": "would be sent later, at their time",
    "uncertain": "were in flight and may have been delivered: never resent silently",
    "dead": "failed for good or expired: dead letters",
    "sent": "were sent: history",
    "cancelled": "are cancelled: history",
    "unmappable": "cannot be mapped: listed, and left where they are",
    "left_alone": "are no outgoing emails: left where they are",
}
"""What becomes of a row, with what that means."""
SAMPLED: Final = ("waiting", "scheduled", "uncertain", "unmappable")
OLD_AFTER_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows have an outcome, how many recipients they have, and how many are old."""

    rows: int = 0
    recipients: int = 0
    old: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A row, for a person to check."""

    kind: str
    id: str | None
    recipient: str | None
    status: str | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """What would become of one queue, and the query that decides it."""

    table: str
    counts: dict[str, Count]
    samples: tuple[Sample, ...]
    query: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What would become of all queues of a mapping."""

    queues: tuple[Counted, ...]
    logged: dict[str, int]
    """Messages that only a log knows, by outcome."""

    def rows(self, kind: str) -> int:
        """Return the number of rows or messages with an outcome."""
        counted = sum(each.counts.get(kind, Count()).rows for each in self.queues)
        return counted + self.logged.get(kind, 0)


def plan_for(connection: psycopg.Connection[Any], mapping: Mapping) -> Plan:
    """Compare a mapping with the database, refuse open questions, and count."""
    with reading(connection) as reader:
        catalog = reader.catalog()
    check(mapping, catalog)
    answered(mapping)
    return count(connection, mapping, catalog)


def count(
    connection: psycopg.Connection[Any],
    mapping: Mapping,
    catalog: Catalog,
    *,
    old_after_days: int = OLD_AFTER_DAYS,
    samples: int = 3,
) -> Plan:
    """Count in read-only transactions; the mapping was checked and has no open questions."""
    queues = tuple(
        _count(connection, each, catalog, old_after_days, samples) for each in mapping.queues
    )
    logged: dict[str, int] = {}
    for log in {each.log.table: each.log for each in mapping.queues if each.log}.values():
        known = [
            query
            for each in mapping.queues
            if each.log and each.log.table == log.table
            for query in Expressions(each, catalog).known()
        ]
        query = part("logged", **log_parts(log, catalog), known=SQL(" UNION ALL ").join(known))
        for row in _ask(connection, query, "UTC"):
            logged[row["kind"]] = row["rows"]
    return Plan(queues, logged)


def _count(
    connection: psycopg.Connection[Any],
    queue: Queue,
    catalog: Catalog,
    old_after_days: int,
    samples: int,
) -> Counted:
    classified = Expressions(queue, catalog).classified()
    old = Literal(f"{old_after_days} days")
    zone = queue.timezone or "UTC"
    counts = _ask(connection, part("counts", classified=classified, old_after=old), zone)
    given = {"kinds": Literal(list(SAMPLED)), "limit": Literal(samples)}
    rows = _ask(connection, part("samples", classified=classified, **given), zone)
    return Counted(
        queue.table,
        {row["kind"]: Count(row["rows"], row["recipients"], row["old"]) for row in counts},
        tuple(Sample(**row) for row in rows),
        classified.as_string(connection),
    )


def _ask(
    connection: psycopg.Connection[Any], query: Composed, timezone: str
) -> list[dict[str, Any]]:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(QUERIES["limits"], {"timezone": timezone})
            with connection.cursor(row_factory=dict_row) as cursor:
                # In this format the server accepts one statement only: `recipient_sql` cannot add
                # another one, such as a COMMIT.
                cursor.execute(query, binary=True)
                return cursor.fetchall()
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.InternalError) as error:
        raise InvalidMapping(
            f"the database cannot read the rows as the mapping says: {database.first_line(error)}",
            "Nothing was changed. Check the types of the mapped columns, and recipient_sql.",
        ) from None
