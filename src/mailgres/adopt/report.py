"""Explain an inspection in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.adopt.mapping import ASK, NO_PLACE
from mailgres.adopt.writers import endpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.adopt.inspection import Found, Inspection
    from mailgres.adopt.mapping import Queue

MEANINGS = {
    "waiting": "waits to be sent",
    "processing": "is being sent; perhaps it was delivered",
    "sent": "was sent",
    "failed_retriable": "failed, and is retried",
    "failed_final": "failed for good",
    "cancelled": "is cancelled",
    "left_alone": "is no outgoing email",
    "unknown": "nobody knows; its rows are listed and left",
    ASK: "not understood: a question for you",
}


def report(found: Inspection) -> Iterator[str]:
    """Yield the lines of a report."""
    for number, each in enumerate(found.queues):
        yield from ("",) * bool(number)
        yield from _queue(each)
    if found.others or found.unread:
        yield ""
    if found.others:
        yield f"Other tables that look like queues of emails: {', '.join(found.others)}."
    for name in found.unread:
        yield f"Not read: {name}; your role may not read it, or it took too long."


def _queue(found: Found) -> Iterator[str]:
    proposal, queue = found.proposal, found.proposal.queue
    made = f" ({proposal.package})" if proposal.package else ""
    yield f"The queue is {queue.table}{made}."
    if not proposal.table.readable:
        yield "  Your role may not read its rows: what follows comes from the catalog alone."
    elif proposal.table.filtered:
        yield "  Row security hides rows from your role: statuses may be missing."
    yield from ("", "Columns")
    yield from _columns(queue, proposal.remarks)
    yield from ("", "Statuses")
    yield from _statuses(found)
    yield from ("", "Retries")
    yield f"  {_retries(queue, proposal.remarks)}"
    yield from ("", "Who inserts")
    yield from _inserting(found)
    yield from ("", "Who processes")
    yield from _processing(found)
    yield from ("", "What does not fit a view in its place")
    yield from _attached(found)
    yield from ("", "What is wrong")
    for fault in found.faults:
        yield f"  {fault.name}: {fault.message}"
        yield f"      {fault.line}"
    if not found.faults:
        yield "  nothing was found"


def _columns(queue: Queue, remarks: dict[str, str]) -> Iterator[str]:
    width = max(len(str(each)) for each in queue.columns)
    for source, to in queue.columns.items():
        remark = remarks.get(f"columns.{source}")
        name = {NO_PLACE: "-", ASK: "?"}.get(to, to)
        if to in queue.lists:
            name += " (list)"
        yield f"  {source!s:<{width}}  {name}" + (f"  ({remark})" if remark else "")
    if queue.templates is not None:
        yield f"  templates: {queue.templates.table}, by {queue.templates.key}"
    if queue.timezone is not None:
        yield f"  time zone: {queue.timezone}  ({remarks['timezone']})"


def _statuses(found: Found) -> Iterator[str]:
    proposal, queue = found.proposal, found.proposal.queue
    for status, what in queue.statuses.items():
        remark = proposal.remarks.get(f"statuses.{status}")
        yield f"  {status}: {MEANINGS[what]}" + (f"  ({remark})" if remark else "")
    if not queue.statuses:
        yield "  no column has a status: a row is waiting until it is deleted or its times say else"
    else:
        yield f"  null: {MEANINGS[queue.null_status]}"
    if queue.only is not None:
        values = ", ".join(queue.only.values)
        yield f"  outgoing emails are rows with {queue.only.source} = {values}"
    if queue.dead_letters:
        yield f"  dead letters are in {queue.dead_letters}"


def _retries(queue: Queue, remarks: dict[str, str]) -> str:
    counted = queue.source("retries")
    if queue.log is not None and queue.log.attempts:
        return f"{queue.log.table} logs each failed attempt; {queue.attempts_limit} make it dead"
    if counted is None:
        when = queue.source("next_retry_at")
        return f"at {when}, without a count" if when else "none: the first failure is the last"
    if (most := queue.source("max_retries")) is not None:
        limit = f"until it reaches {most}"
    elif queue.attempts_limit is not None:
        limit = f"up to {queue.attempts_limit} ({remarks.get('attempts_limit', '')})"
    else:
        limit = "as the processor decides"
    when = queue.source("next_retry_at")
    return f"counted in {counted}, {limit}" + (f"; the next one is at {when}" if when else "")


def _inserting(found: Found) -> Iterator[str]:
    for function in found.writers.inserting:
        yield f"  function {function.signature}"
    for trigger in found.writers.inserting_triggers:
        yield f"  trigger {trigger.name} on {trigger.table}"
    if not found.writers.inserting and not found.writers.inserting_triggers:
        yield "  no function or trigger of the database: the application does"


def _processing(found: Found) -> Iterator[str]:
    who = found.writers
    for job in who.jobs:
        state = "" if job.active else ", switched off"
        calls = ", ".join(endpoints(job))
        yield f"  cron job {job.title} ({job.schedule}{state})" + (
            f" calls {calls}" if calls else ""
        )
    for function in who.changing:
        yield f"  function {function.signature} changes rows"
    for trigger in who.changing_triggers:
        yield f"  trigger {trigger.name} on {trigger.table} changes rows"
    if not who.jobs:
        yield "  no cron job of this database: an edge function, a worker or a cron outside"


def _attached(found: Found) -> Iterator[str]:
    table, number = found.proposal.table, 0
    for each in table.references:
        number += 1
        yield f"  foreign key of {each.table} onto it: {each.definition}"
    for trigger in found.writers.own_triggers:
        number += 1
        yield f"  its trigger {trigger.name}: {trigger.definition}"
    for name in table.publications:
        number += 1
        yield f"  publication {name} (Realtime or replication)"
    for name in table.views:
        number += 1
        yield f"  view {name} reads it"
    if not number:
        yield "  nothing: no foreign key onto it, no trigger, no publication, no view"
