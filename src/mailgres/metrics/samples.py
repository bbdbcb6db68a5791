"""The samples of one scrape, before they are written."""

from __future__ import annotations

from dataclasses import dataclass

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram: how many are at most each bound, how many in all, and their sum."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    count: int
    total: float


Value = float | Spread
Samples = dict[str, list[tuple[Labels, Value]]]
"""Labels and values, by the name of the metric without its prefix."""
Sample = tuple[str, Labels, Value]
