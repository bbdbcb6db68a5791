"""Counters that only grow, from rollups that expire.

A counter has to grow for as long as this process lives, whatever expires meanwhile: the sum of
hours that no longer change is kept.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Ask = Callable[[LiteralString, Mapping[str, object]], list[tuple[str, int, int]]]

SETTLED = timedelta(hours=2)
"""After this time nothing is added to an hour: no transaction takes as long."""
CARRY = timedelta(days=1)
"""How much is counted again each time, at most."""


class MonotonicCounter:
    """Sums by label, from the hour in which it was made."""

    def __init__(self, query: LiteralString) -> None:
        self._query = query
        self._since: datetime | None = None
        self._carried: Counter[str] = Counter()

    def read(self, ask: Ask, hour: datetime) -> dict[str, int]:
        """Return the current counts; `hour` is the database's."""
        since, until = self._since or hour, hour - SETTLED
        rows = ask(self._query, {"since": since, "until": until})
        counts = self._carried + Counter({label: count for label, _, count in rows})
        if until - since >= CARRY:
            self._carried.update({label: settled for label, settled, _ in rows})
            since = until
        self._since = since
        return dict(counts)
