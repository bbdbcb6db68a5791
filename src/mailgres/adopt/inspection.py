"""Inspect a foreign database: find its queues, explain them, and propose a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mailgres.adopt import pgmq
from mailgres.adopt.faults import Fault, faults
from mailgres.adopt.mapping import Mapping
from mailgres.adopt.reading import Reader, reading
from mailgres.adopt.tables import Proposal, propose
from mailgres.adopt.vocabulary import KIND_NAMES, MAIL_NAMES, QUEUE_NAMES, place, plain
from mailgres.adopt.writers import Writers, writers
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from mailgres.adopt.catalog import Catalog, Column, Rows, Table


CLOSE: Final = 1
"""A table with so few points less than the best may be the queue as well."""


@dataclass(frozen=True, slots=True)
class Found:
    """A queue, with who writes to it and what is wrong with it."""

    proposal: Proposal
    writers: Writers
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in a database."""

    catalog: Catalog
    queues: tuple[Found, ...]
    others: tuple[str, ...] = ()
    """Tables that look like queues, too, but less so."""
    unread: tuple[str, ...] = ()
    """What could not be read: cron.job, or the rows of a table."""

    @property
    def mapping(self) -> Mapping:
        """Return the proposed mapping."""
        return Mapping(tuple(each.proposal.queue for each in self.queues))


def inspect(connection: psycopg.Connection[Any], tables: Sequence[str] = ()) -> Inspection:
    """Inspect a database in a read-only transaction. `tables` names the queues, if known."""
    with reading(connection) as reader:
        catalog = reader.catalog()
        read = _reader_of(reader)
        proposals = pgmq.proposals(catalog, read) + [
            found
            for table in catalog.tables
            if table.schema != "pgmq" and _may_be_queue(table)
            if (found := propose(table, read(table), catalog))
        ]
    chosen = _choose(proposals, catalog, tables)
    names = [each.table.full_name for each in chosen]
    others = [each.table.full_name for each in proposals if each.table.full_name not in names]
    explained = tuple(_explain(each, catalog) for each in chosen)
    return Inspection(catalog, explained, tuple(others), (*catalog.unreadable, *reader.unread))


def _may_be_queue(table: Table) -> bool:
    """Return whether its rows are worth reading: it may have an address, or be named like a queue.

    A database has hundreds of tables that have nothing to do with emails.
    """
    words = set(plain(table.name).split("_"))
    return bool(words & (QUEUE_NAMES | MAIL_NAMES)) or any(
        each.kind == "json" or place("recipient_email", each.name) is not None
        for each in table.columns
    )


def _reader_of(reader: Reader) -> Callable[[Table], Rows]:
    """Return a function that reads each table once."""
    rows: dict[str, Rows] = {}

    def read(table: Table) -> Rows:
        if table.full_name not in rows:
            few = tuple(each.name for each in table.columns if _has_few(each))
            rows[table.full_name] = reader.rows(table, few)
        return rows[table.full_name]

    return read


def _has_few(column: Column) -> bool:
    """Return whether a column may be a status or a kind, whose values are worth counting."""
    if column.array or column.kind not in ("text", "enum", "number", "boolean"):
        return False
    return place("status", column.name) is not None or plain(column.name) in KIND_NAMES


def _explain(proposal: Proposal, catalog: Catalog) -> Found:
    who = writers(proposal.table, catalog)
    return Found(proposal, who, tuple(faults(proposal, who, catalog)))


def _choose(proposals: list[Proposal], catalog: Catalog, tables: Sequence[str]) -> list[Proposal]:
    """Return the queues: those that were named, else the one that stands out."""
    by_name = {each.table.full_name: each for each in proposals}
    if tables:
        return [_named(name, by_name, catalog) for name in tables]
    if not proposals:
        raise MailgresError(
            "No queue of emails was found in this database",
            "A queue is a table with an address, a status and content. `--table` names one.",
        )
    best = max(each.points for each in proposals)
    chosen = [each for each in proposals if each.package == "pgmq"] or [
        each for each in proposals if each.points >= best - CLOSE
    ]
    if len(chosen) > 1 and chosen[0].package != "pgmq":
        names = ", ".join(sorted(each.table.full_name for each in chosen))
        raise MailgresError(
            f"{len(chosen)} tables may be the queue: {names}",
            "Name it with --table; give the option several times to adopt several.",
        )
    return chosen


def _named(name: str, proposals: dict[str, Proposal], catalog: Catalog) -> Proposal:
    full = name if "." in name else f"public.{name}"
    if full in proposals:
        return proposals[full]
    if catalog.table(full) is None:
        raise MailgresError(
            f"There is no table {full}",
            "Give schema and name as SQL writes them, and check that your role may see it.",
        )
    raise MailgresError(
        f"{full} does not look like a queue of emails",
        "A queue has an address, a status or a time, and content or a template.",
    )
