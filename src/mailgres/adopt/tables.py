"""Propose a mapping for one table, with a remark on every guess and every question."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mailgres.adopt import known, statuses, values
from mailgres.adopt.columns import Assigned, Place, assign, in_json, lists, of_table, timezone
from mailgres.adopt.mapping import ASK, NO_PLACE, Only, Queue, Source, Templates
from mailgres.adopt.vocabulary import (
    CONTENT,
    EMAIL_WORDS,
    KIND_NAMES,
    MAIL_NAMES,
    OTHER_NAMES,
    OUTBOUND_WORDS,
    QUEUE_NAMES,
    place,
    plain,
)

if TYPE_CHECKING:
    from mailgres.adopt.catalog import Catalog, Rows, Table

ENOUGH: Final = 5
"""A table with this many points may be a queue of emails."""
MANY: Final = 5
"""Every fifth row without an address is worth a question."""
EXAMPLE: Final = "give an expression on the row q: (SELECT email FROM users WHERE id = q.user_id)"
_INBOUND: Final = frozenset({"inbound", "is_inbound", "incoming", "is_incoming"})


@dataclass(slots=True)
class Proposal:
    """A mapping for one table, with remarks by key of the file, and what the statuses come from."""

    queue: Queue
    table: Table
    rows: Rows
    remarks: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    """Where each status was seen: a constraint, an enum, rows."""
    points: int = 0
    package: str | None = None


def propose(table: Table, rows: Rows, catalog: Catalog) -> Proposal | None:
    """Return the mapping of a table, or None if it holds no emails to send."""
    places, found = _assigned(table, rows)
    points = _points(table, found)
    if points < ENOUGH:
        return None
    draft = Proposal(Queue(table.full_name, {}), table, rows, points=points)
    _decide_only(places, found, draft)
    for each, remark in found.remarks.items():
        draft.remarks[f"columns.{each}"] = remark
    zone, draft.remarks["timezone"] = timezone(places, found, catalog.timezone)
    draft.queue = replace(
        draft.queue, columns=found.fields, lists=lists(places, found), timezone=zone
    )
    _decide_recipient(found, draft)
    _decide_statuses(places, found, draft, catalog)
    _decide_limit(found, draft, catalog)
    _decide_priorities(found, draft)
    templates = _templates(table, found, catalog)
    draft.queue = replace(draft.queue, templates=templates)
    if draft_package := known.package(table):
        draft.package = draft_package
        draft.queue = known.completed(draft.queue, draft_package, draft.remarks)
    return draft


def _assigned(table: Table, rows: Rows) -> tuple[list[Place], Assigned]:
    """Return the places and their fields; if no column has the address, JSON may have it."""
    key = table.key[0] if len(table.key) == 1 else None
    places = of_table(table, rows)
    found = assign(places, key)
    values.decide(places, found)
    if found.source("recipient_email") is None:
        for column in (each for each in table.columns if each.kind == "json"):
            inner = in_json(column.name, rows)
            rest = [each for each in places if each.source.column != column.name]
            deeper = assign([*inner, *rest], key)
            if deeper.source("recipient_email") is not None:
                return [*inner, *rest], deeper
    return places, found


def _points(table: Table, found: Assigned) -> int:
    """Return how much a table looks like a queue of emails."""
    words = set(plain(table.name).split("_"))
    named = bool(words & QUEUE_NAMES)
    about_mail = bool(words & MAIL_NAMES) or "post_office" in table.name
    has = {name for name in found.fields.values() if name}
    status = bool(has & {"status", "next_retry_at", "sent_at", "lease_until"})
    content = bool(has & {*CONTENT, "template_type", "payload"})
    if not status or not content or not ("recipient_email" in has or (named and about_mail)):
        return 0
    points = 3 * named + about_mail + 2 * ("status" in has) - 4 * bool(words & OTHER_NAMES)
    points += bool(has & {"retries", "next_retry_at", "scheduled_for"})
    return points + bool(has & {"error_message"}) + bool(has & set(CONTENT)) + ("payload" in has)


def _decide_only(places: list[Place], found: Assigned, draft: Proposal) -> None:
    """Find the column that says which rows are outgoing emails."""
    for each in places:
        name = plain(each.name)
        if name in _INBOUND and each.kind == "boolean":
            _keep(found, draft, each.source, ("false",), "guess: not inbound")
            return
        if name not in KIND_NAMES or each.kind not in ("text", "enum"):
            continue
        seen = sorted(_values(each, draft))
        ours = [v for v in seen if plain(v) in EMAIL_WORDS | OUTBOUND_WORDS]
        if ours and len(seen) > len(ours):
            others = ", ".join(v for v in seen if v not in ours)
            _keep(found, draft, each.source, tuple(ours), f"guess: not {others}")
            return
        if name == "direction" and seen and not ours:
            _keep(found, draft, each.source, (ASK,), f"asks: which of {', '.join(seen)}?")
            return


def _values(each: Place, draft: Proposal) -> set[str]:
    if each.source.path:
        return {str(value) for value in each.values}
    return set(statuses.found_values(draft.table, each.source.column, draft.rows)) | {
        str(value) for value in each.values
    }


def _keep(
    found: Assigned, draft: Proposal, source: Source, values: tuple[str, ...], remark: str
) -> None:
    draft.queue = replace(draft.queue, only=Only(source, values))
    draft.remarks["only"] = remark
    found.set(source, NO_PLACE, "says which rows are outgoing emails")


def _decide_recipient(found: Assigned, draft: Proposal) -> None:
    """Ask for an expression if many rows have no address of their own."""
    source, only = found.source("recipient_email"), draft.queue.only
    emails = [
        row
        for row in draft.rows.sample
        if only is None or str(value_at(row, only.source)) in only.values
    ]
    if source is None:
        draft.remarks["recipient_sql"] = "asks: no column has the address"
    else:
        without = sum(value_at(row, source) is None for row in emails)
        if not without or without * MANY < len(emails):
            return
        draft.remarks["recipient_sql"] = (
            f"asks: {without} of {len(emails)} rows seen have no address in {source}; {EXAMPLE}"
        )
    draft.queue = replace(draft.queue, recipient_sql=ASK)


def value_at(row: dict[str, Any], source: Source) -> Any:  # noqa: ANN401 - what JSON holds
    """Return the value of a sampled row at a place."""
    value: Any = row.get(source.column)
    for key in source.path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _decide_statuses(
    places: list[Place], found: Assigned, draft: Proposal, catalog: Catalog
) -> None:
    by_source = {each.source: each for each in places}
    source = found.source("status")
    if source is None:
        if found.source("next_retry_at"):
            draft.queue = replace(draft.queue, without_next_retry=ASK)
            draft.remarks["without_next_retry"] = "asks: failed_final, or waiting?"
        draft.queue = replace(draft.queue, null_status=ASK)
        draft.remarks["null_status"] = (
            "asks: no column was found to be the status; waiting means that every row waits"
        )
        return
    if by_source[source].kind == "boolean":
        names, remarks = statuses.of_boolean(str(source))
        draft.queue = replace(draft.queue, null_status="waiting")
        draft.remarks["null_status"] = "guess: as false"
    else:
        if source.path:
            draft.seen = {str(each): "rows" for each in by_source[source].values}
        else:
            draft.seen = statuses.found_values(draft.table, source.column, draft.rows)
        names, remarks = statuses.meanings(draft.seen)
        name = by_source[source].name
        again = statuses.retried_failures(names, draft.table, name, catalog)
        for status, line in again.items():
            names[status] = "failed_retriable"
            remarks[status] = f"guess: it is picked again: {line}"
        draft.remarks["null_status"] = "rows without a status are listed and left"
    draft.queue = replace(draft.queue, statuses=names)
    draft.remarks |= {f"statuses.{status}": remark for status, remark in remarks.items()}


def _decide_limit(found: Assigned, draft: Proposal, catalog: Catalog) -> None:
    source = found.source("retries")
    if source is None or source.path or found.source("max_retries"):
        return
    number, remark = statuses.limit(draft.table, source.column, draft.rows, catalog)
    draft.queue = replace(draft.queue, attempts_limit=number)
    draft.remarks["attempts_limit"] = remark


def _decide_priorities(found: Assigned, draft: Proposal) -> None:
    source = found.source("priority")
    if source is None or source.path:
        return
    scale, remark = statuses.priorities(draft.table, source.column, draft.rows)
    draft.queue = replace(draft.queue, priorities=scale)
    draft.remarks["priorities"] = remark


def _templates(table: Table, found: Assigned, catalog: Catalog) -> Templates | None:
    """Return the table of templates: the one that a foreign key names, else the only one."""
    source = found.source("template_type")
    if source is None or source.path:
        return None
    linked = [
        each for each in table.constraints if each.kind == "f" and each.columns == (source.column,)
    ]
    if linked:
        target = catalog.table(linked[0].target or "")
        return template_table(target, linked[0].target_columns[0]) if target else None
    if any(found.source(each) for each in ("html", "text", "body")):
        return None
    tables = [known for each in catalog.tables if (known := template_table(each))]
    return tables[0] if len(tables) == 1 else None


def template_table(table: Table, key: str | None = None) -> Templates | None:
    """Return a table as templates, if it is one."""
    if not {"template", "templates", "emailtemplate", "plantillas"} & set(
        plain(table.name).split("_")
    ):
        return None
    names = [each.name for each in table.columns if each.kind in ("text", "enum")]

    def best(name: str) -> str | None:
        ranked = [(rank, n) for n in names if (rank := place(name, n)) is not None]
        return min(ranked)[1] if ranked else None

    keys = ("template_key", "key", "slug", "template_type", "code", "name", "template_name")
    named = key or next((each for each in keys if each in names), None)
    subject, html, text, body = (best(each) for each in CONTENT)
    if named is None or subject is None or not (html or text or body):
        return None
    if body and html and not text:
        text, body = body, None
    return Templates(table.full_name, named, subject, html, text, body)
