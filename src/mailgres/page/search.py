"""Finds emails, newest first, in bounded steps. It never counts, and never reads the whole table.

Ids are ordered by time. So a step reads a range of the primary key backwards. If a page is not full
after a short time, the search stops and says how far it looked; the next one goes on there. Emails
that wait, are being sent or are dead are found by their own index while there are few of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from mailgres.page.filters import Filter
    from mailgres.page.store import PageStore
    from mailgres.page.users import Role

PAGE_SIZE = 50
STEPS = (1_000, 10_000)
"""Emails that the first step reads, and each further one."""
BUDGET_SECONDS = 0.08
"""Seconds after which no further step is started."""
FEW = 5_000
"""Emails of a status that are looked up by their index."""
INDEXED = ("pending", "sending", "failed")
LAST = UUID(int=2**128 - 1)
FIRST = UUID(int=0)
_ORIGIN = datetime(2025, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass
class Found:
    """A page of ids; `after`: where the next page starts, if there may be one.

    `looked`: how many emails were read; `reached`: when the last of them was enqueued. Both are
    set if the search stopped before the page was full and before the end.
    """

    ids: list[UUID] = field(default_factory=list)
    after: UUID | None = None
    looked: int = 0
    reached: datetime | None = None


def first_id_of(at: datetime) -> UUID:
    """Return the smallest id of a time."""
    milliseconds = int(at.timestamp() * 1000)
    return UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)


def search(
    store: PageStore,
    role: Role,
    chosen: Filter,
    after: UUID | None,
    budget: float = BUDGET_SECONDS,
) -> Found:
    """Find a page of emails."""
    before = after or LAST
    parameters = chosen.parameters()
    status = parameters["status"]
    if isinstance(status, list) and status[0] in INDEXED and not chosen.recipient:
        ids = store.read(role, "open_ids", status=status, most=FEW + 1)
        if len(ids) <= FEW:
            few = [row["id"] for row in ids]
            limits = {"before": before, "ids": few, "limit": PAGE_SIZE + 1}
            (row,) = store.read(role, "search_open", **parameters | limits)
            return _page(row["ids"])
    return _walk(store, role, chosen, before, time.monotonic() + budget)


def _walk(store: PageStore, role: Role, chosen: Filter, before: UUID, deadline: float) -> Found:
    """Read backwards until the page is full, the emails end, or time is up."""
    first, last = _range(store, role, chosen)
    parameters = chosen.parameters() | {"first": first, "limit": PAGE_SIZE + 1}
    query = "search_recipient" if chosen.recipient else "search"
    if not chosen.recipient:
        parameters.pop("recipient")
        parameters.pop("suffix")
    before, found, step = min(before, last), Found(), STEPS[0]
    while True:
        (row,) = store.read(role, query, **parameters | {"before": before, "step": step})
        found.ids += row["ids"]
        found.looked += row["examined"]
        if len(found.ids) > PAGE_SIZE:
            return _page(found.ids)
        if row["examined"] < step:
            return Found(found.ids)
        before, step = row["last_id"], STEPS[1]
        if time.monotonic() >= deadline:
            return Found(found.ids, before, found.looked, row["reached"])


def _page(ids: list[UUID]) -> Found:
    more = len(ids) > PAGE_SIZE
    return Found(ids[:PAGE_SIZE], ids[PAGE_SIZE - 1] if more else None)


def _range(store: PageStore, role: Role, chosen: Filter) -> tuple[UUID, UUID]:
    """Return the range of ids that a period can have: an id is at most a day younger."""
    if not (chosen.since_at or chosen.until_at):
        return FIRST, LAST
    tomorrow = first_id_of(datetime.now(UTC) + _DAY)
    (row,) = store.read(role, "has_foreign_ids", origin=first_id_of(_ORIGIN), tomorrow=tomorrow)
    if row["has"]:
        return FIRST, LAST
    first = first_id_of(chosen.since_at) if chosen.since_at else FIRST
    last = first_id_of(chosen.until_at + _DAY) if chosen.until_at else LAST
    return first, last
