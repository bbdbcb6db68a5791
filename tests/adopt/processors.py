"""The old processors of the shapes, as they run: their own SQL, in their order."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

from adopt.conftest import SHAPES, renamed

STEPS: dict[str, tuple[int | None, int, int]] = {
    "boolean-sent": (None, 1, 2),
    "django-post-office": (None, 1, 2),
    "drizzle-serial": (None, 1, 3),
    "failed-is-final": (None, 3, 2),
    "jsonb-outbox": (None, 2, 3),
    "retry-queue-priority": (1, 2, 3),
    "scheduled-trigger-fed": (1, 2, 3),
    "simulated-send": (None, 1, 2),
    "spanish-comma-list": (1, 2, 3),
}
"""Which statements of `processor.sql` claim, report success and report failure; the first picks."""


def statements(shape: str) -> list[str]:
    text = renamed((SHAPES / shape / "processor.sql").read_text(encoding="utf-8"))
    bare = re.sub(r"--[^\n]*", "", text)
    found = [each.strip() for each in bare.split(";") if each.strip()]
    return [each.replace(":'ids'", "%(ids)s").replace(":'id'", "%(id)s") for each in found]


@dataclass
class OldProcessor:
    """An old processor, with what it delivered by row."""

    url: str
    shape: str
    delivered: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._sql = statements(self.shape)
        self._claim, self._success, self._failure = STEPS[self.shape]
        self._connection = psycopg.connect(
            self.url, autocommit=True, cursor_factory=psycopg.ClientCursor
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def claims(self) -> bool:
        """Whether it marks a row before it sends it."""
        return self._claim is not None

    def pick(self) -> list[str]:
        cursor = self._connection.execute(self._sql[0].encode())
        assert cursor.description is not None
        place = [each.name for each in cursor.description].index("id")
        return [str(row[place]) for row in cursor.fetchall()]

    def claim(self, row: str) -> None:
        if self._claim is not None:
            self._run(self._claim, row)

    def send(self, row: str) -> None:
        self.delivered[row] += 1

    def succeed(self, row: str) -> None:
        self._run(self._success, row)

    def fail(self, row: str) -> None:
        self._run(self._failure, row)

    def process(self, row: str, outcome: str = "sent") -> None:
        """Claim, send and report; a run that dies reports nothing."""
        self.claim(row)
        if outcome == "failed":
            self.fail(row)
        elif outcome == "sent":
            self.send(row)
            self.succeed(row)
        elif self.claims:
            self.send(row)

    def _run(self, statement: int, row: str) -> None:
        given: dict[str, Any] = {"id": row, "ids": "{" + row + "}"}
        self._connection.execute(self._sql[statement].encode(), given)
