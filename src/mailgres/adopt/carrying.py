"""Find what a view in the place of the old table cannot carry, with the fix for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mailgres.adopt.catalog import line_with, quoted
from mailgres.adopt.files import InvalidMapping
from mailgres.adopt.generated import SCHEMA, null_waits
from mailgres.adopt.writers import inserts, writers
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.adopt.catalog import Catalog, Table
    from mailgres.adopt.mapping import Queue

RESERVED: Final = ("adopted_queues", "adopted_rows", "adopted_steps")
CLOSED: Final = ("PUBLIC", "anon")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What does not go on working by itself, and what to do about it."""

    what: str
    fix: str
    lost: bool = True
    """Whether it stops working; otherwise it goes on, in another way than before."""


def refuse(queue: Queue, table: Table, labels: dict[str, str]) -> None:
    """Refuse a queue that this command cannot move whole."""
    hint = "Nothing was changed. docs/moving-in.md says which queues can be moved."
    source = queue.source("id")
    if table.schema == "pgmq" or queue.log is not None or queue.dead_letters is not None:
        raise MailgresError(f"{queue.table} is a queue of pgmq; those cannot be moved yet", hint)
    if (table.schema, table.name) == ("public", "email_queue"):
        raise MailgresError("public.email_queue has our name; it cannot be moved yet", hint)
    if table.name in RESERVED:
        raise MailgresError(f"{queue.table} has a name that mailgres uses in {SCHEMA}", hint)
    if source is None or source.path or (source.column,) != table.key:
        raise MailgresError(
            f"{queue.table} has no key of one column that the mapping calls id",
            "Add a primary key, and map its column to id.",
        )
    if queue.source("status") is None:
        _refuse_without_status(queue)
    else:
        _refuse_statuses(queue, table, labels, hint)


def _refuse_statuses(queue: Queue, table: Table, labels: dict[str, str], hint: str) -> None:
    if queue.sources("status")[0].path:
        raise MailgresError(f"{queue.table} has its status in JSON; this cannot be moved yet", hint)
    if "sent" not in labels:
        raise InvalidMapping(
            f"no status of {queue.table} means sent", "Map one of them to sent, and run this again."
        )
    if null_waits(queue, table) and table.column(queue.sources("status")[0].column).kind != "text":
        raise InvalidMapping(
            f"a row of {queue.table} that mailgres has cannot be hidden from the old processor:"
            " rows without a status wait there",
            "Give those rows a status, and map null_status to unknown.",
        )


def _refuse_without_status(queue: Queue) -> None:
    if not (queue.source("next_retry_at") or queue.source("scheduled_for")):
        raise InvalidMapping(
            f"a row of {queue.table} that mailgres has cannot be hidden from the old processor:"
            " it has neither a status nor a time of the next attempt",
            "Add a column for one of them, and let the old processor heed it.",
        )


def obstacles(queue: Queue, table: Table, catalog: Catalog) -> list[Obstacle]:
    """Return what a view cannot carry, and what changes; the application's code is not seen."""
    return [
        *_keys_and_triggers(queue, table, catalog),
        *_readers(table),
        *_conflicts(table, catalog),
    ]


def _keys_and_triggers(queue: Queue, table: Table, catalog: Catalog) -> Iterator[Obstacle]:
    moved = f"{SCHEMA}.{quoted(table.name)}"
    for each in table.references:
        yield Obstacle(
            f"foreign key {each.name} of {each.table} refers to the old table",
            f"It goes on working, and refers to {moved}, where every row stays.",
            lost=False,
        )
    for trigger in writers(table, catalog).own_triggers:
        if "supabase_functions" in trigger.definition or "http_request" in trigger.definition:
            yield Obstacle(
                f"database webhook {trigger.name} calls out for each change of {queue.table}",
                "It goes on, for the old table. If it starts the old processor, drop it.",
                lost=False,
            )
        else:
            yield Obstacle(
                f"trigger {trigger.name} of {queue.table}",
                f"It goes on, on {moved}. One that sends emails by itself has to be dropped.",
                lost=False,
            )


def _readers(table: Table) -> Iterator[Obstacle]:
    for name in table.publications:
        yield Obstacle(
            f"publication {name} (Realtime or replication) has the table, and cannot have a view",
            f"Subscribe to changes of {SCHEMA}.{quoted(table.name)}, or of public.email_queue.",
        )
    for name in table.views:
        yield Obstacle(
            f"view {name} reads the old table itself, and does not see what mailgres sends",
            "Create it again after the move, so that it reads the new view.",
        )


def rights(role: str, lost: str, *, bound: bool) -> Obstacle:
    """Return what a role may no longer do; `bound`: row security applies to it."""
    if bound:
        return Obstacle(
            f"{role} may {lost} the table under row security",
            "A view applies policies when rows are read, not when they are written: such a role may"
            " only read. Let it call a function of yours.",
        )
    return Obstacle(
        f"{role} may {lost} the table",
        "The view is closed to it. Grant what the application needs to a role of its own.",
    )


def _conflicts(table: Table, catalog: Catalog) -> Iterator[Obstacle]:
    for each in catalog.functions:
        if inserts(each, table) and re.search(r"\bON\s+CONFLICT\b", each.code, re.IGNORECASE):
            line = line_with(each.source, r"ON\s+CONFLICT")
            yield Obstacle(
                f"{each.signature} inserts with ON CONFLICT, which a view does not take: {line}",
                f"Insert into {SCHEMA}.{quoted(table.name)} there, or check first.",
            )
