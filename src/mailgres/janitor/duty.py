"""What a janitor is: a duty, and how often and in which steps it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres import queries

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import LiteralString


@dataclass(frozen=True, kw_only=True)
class Janitor:
    """One duty. `query` does a chunk of it and returns how many rows it handled."""

    name: str
    duty: str
    every: timedelta
    query: LiteralString
    chunk: int | None = None
    """Rows handled by one call of the query; None if it is done with one call."""
    locked: bool = True
    """One at a time across all workers; otherwise each worker does it for itself."""

    @property
    def action(self) -> str:
        """What its log lines are called, and its lock."""
        return f"janitor.{self.name}"


def query(name: str) -> LiteralString:
    """Return the query of a janitor."""
    return queries.load("janitor.sql")[name]
