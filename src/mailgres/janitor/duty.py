"""What a janitor is: a duty, and how often and in which steps it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailgres import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from typing import Any, LiteralString

    import psycopg

    Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]


@dataclass(frozen=True)
class Alerts:
    """Whom operators' news go to, besides the log."""

    email: str | None = None
    webhook: str | None = field(default=None, repr=False)
    webhook_format: str = "auto"


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

    after: Callable[[Sequence[Any], Alerts, Connect], None] | None = None
    """What is done with what the query returns besides, when it is committed."""

    @property
    def action(self) -> str:
        """What its log lines are called, and its lock."""
        return f"janitor.{self.name}"


def query(name: str) -> LiteralString:
    """Return the query of a janitor."""
    return queries.load("janitor.sql")[name]
