"""Propose mappings for queues of pgmq: messages in JSON, dead-letter queues, a log beside them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mailgres.adopt.columns import assign, in_json, timezone
from mailgres.adopt.mapping import ASK, NO_PLACE, Log, Queue, Source
from mailgres.adopt.statuses import DEFAULT_LIMIT, found_values
from mailgres.adopt.tables import Proposal
from mailgres.adopt.vocabulary import MAIL_NAMES, meaning, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.adopt.catalog import Catalog, Rows, Table

_DEAD: Final = re.compile(r"_(?:dlq|dead|dead_letters?)$")
_OWN: Final = {
    "msg_id": "id",
    "enqueued_at": "created_at",
    "vt": "lease_until",
    "read_ct": NO_PLACE,
    "headers": NO_PLACE,
}
LOVABLE_LIMIT: Final = 5
"""The failed attempts after which Lovable's template moves a message to its dead-letter queue."""


def proposals(catalog: Catalog, read: Callable[[Table], Rows]) -> list[Proposal]:
    """Return a mapping for every queue of pgmq that holds emails."""
    found = []
    for name in catalog.pgmq:
        table = catalog.table(f"pgmq.q_{name}")
        if table is None or _DEAD.search(name):
            continue
        rows = read(table)
        proposal = _propose(name, table, rows, catalog)
        if proposal is not None:
            _complete(name, proposal, catalog, read)
            found.append(proposal)
    return found


def _propose(name: str, table: Table, rows: Rows, catalog: Catalog) -> Proposal | None:
    places = in_json("message", rows)
    inner = assign(places, None)
    about_mail = bool(set(plain(name).split("_")) & MAIL_NAMES)
    if inner.source("recipient_email") is None and not about_mail:
        return None
    for each in places:
        if plain(each.name) == "message_id":
            inner.set(each.source, "correlation_id", "guess: by its name")
    columns = dict(inner.fields) | {
        Source(each.name): _OWN.get(each.name, NO_PLACE)
        for each in table.columns
        if each.name != "message" or not places
    }
    zone, remark = timezone(places, inner, catalog.timezone)
    queue = Queue(table.full_name, columns, timezone=zone, null_status="waiting")
    proposal = Proposal(queue, table, rows, points=9)
    proposal.remarks["null_status"] = "a message in a queue waits"
    proposal.package = "pgmq"
    proposal.remarks |= {f"columns.{each}": text for each, text in inner.remarks.items()}
    proposal.remarks["timezone"] = remark
    if inner.source("recipient_email") is None:
        proposal.queue = replace(proposal.queue, recipient_sql=ASK)
        proposal.remarks["recipient_sql"] = "asks: no message seen has an address"
    return proposal


def _complete(
    name: str, proposal: Proposal, catalog: Catalog, read: Callable[[Table], Rows]
) -> None:
    """Add the dead-letter queue, the log and the time after which a message expires."""
    dead = next((n for n in catalog.pgmq if _DEAD.sub("", n) == name and n != name), None)
    log = _log(catalog, read)
    minutes, remark = _expiry(name, catalog, read)
    limit = None
    if log is not None:
        known = minutes is not None
        limit = LOVABLE_LIMIT if known else DEFAULT_LIMIT
        proposal.remarks["attempts_limit"] = (
            "as Lovable's template has it" if known else "guess: nothing in the database says it"
        )
    proposal.remarks["expires_after_minutes"] = remark
    proposal.queue = replace(
        proposal.queue,
        dead_letters=f"pgmq.q_{dead}" if dead else None,
        log=log,
        attempts_limit=limit,
        expires_after_minutes=minutes,
    )


def _log(catalog: Catalog, read: Callable[[Table], Rows]) -> Log | None:
    """Return the table that logs what became of messages: it has their id and a status."""
    for table in catalog.tables:
        names = {each.name for each in table.columns}
        words = set(plain(table.name).split("_"))
        if {"message_id", "status"} <= names and words & {"log", "logs", "history"}:
            meanings = {}
            attempts = []
            for value in found_values(table, "status", read(table)):
                what = meaning(value)
                if value == "failed":
                    attempts.append(value)
                elif what in ("sent", "cancelled"):
                    meanings[value] = what
            return Log(table.full_name, "message_id", "status", meanings, tuple(attempts))
    return None


def _expiry(name: str, catalog: Catalog, read: Callable[[Table], Rows]) -> tuple[int | None, str]:
    """Return after how many minutes a message expires: a column names the queue and `ttl`."""
    wanted = re.compile(rf"{re.escape(name.removesuffix('s'))}s?_ttl_minutes")
    for table in catalog.tables:
        for column in table.columns:
            if wanted.fullmatch(column.name) and column.kind == "number":
                values = read(table).of(column.name)
                if values:
                    return int(values[0]), f"guess: {table.full_name}.{column.name}"
    return None, ""
