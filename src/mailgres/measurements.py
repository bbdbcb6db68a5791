"""What this process measures: kept in memory, read for the metrics.

Plain counts with a lock, so that a worker without the extra `http` measures as well and needs no
library. Labels are names of providers: few.
"""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Reading:
    """A histogram at a moment: how many were at most each bound, all of them, and their sum."""

    label: str
    at_most: tuple[int, ...]
    count: int
    total: float


@dataclass(slots=True)
class _Cells:
    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts values by upper bounds, for each label."""

    bounds: tuple[float, ...]
    _cells: dict[str, _Cells] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, value: float, label: str = "") -> None:
        """Count a value."""
        with self._lock:
            cells = self._cells.get(label)
            if cells is None:
                cells = self._cells[label] = _Cells([0] * (len(self.bounds) + 1))
            cells.counts[bisect.bisect_left(self.bounds, value)] += 1
            cells.total += value

    def read(self) -> list[Reading]:
        """Return the counts by label."""
        with self._lock:
            return [
                Reading(
                    label,
                    tuple(accumulate(cells.counts[:-1])),
                    sum(cells.counts),
                    cells.total,
                )
                for label, cells in sorted(self._cells.items())
            ]


@dataclass(slots=True)
class Moment:
    """When something last happened, in wall-clock time."""

    at: float | None = None

    def note(self) -> None:
        """Record that it happened now."""
        self.at = time.time()


SEND_SECONDS = Histogram((0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0))
"""Duration of calls to providers, by provider."""
BACKOFF_SECONDS = Histogram((1, 5, 15, 60, 300, 900, 3600, 14400, 86400))
"""Delay before the next attempt."""
LAST_CLAIM = Moment()
"""When a claim last reached the database."""
