"""A provider that records in a file: what it accepted outlives the worker and the database."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailgres.model import Message, Result
from mailgres.providers import Capabilities
from support.concurrency import until

NAME = "double"
HANG_SECONDS = 120.0


class Ledger:
    """An append-only file: what happened at the provider, and at marked points."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @contextmanager
    def alone(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the entries under a lock; entries appended to the list are written."""
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            entries = [json.loads(line) for line in file.read().splitlines()]
            known = len(entries)
            yield entries
            lines = [json.dumps(entry) + "\n" for entry in entries[known:]]
            file.write("".join(lines).encode())

    def note(self, event: str, **more: Any) -> None:
        """Record an event."""
        with self.alone() as entries:
            entries.append({"event": event, "pid": os.getpid(), **more})

    def entries(self, event: str) -> list[dict[str, Any]]:
        """Return all entries of a kind, in order."""
        with self.alone() as entries:
            return [entry for entry in entries if entry["event"] == event]

    def accepted(self) -> Counter[str]:
        """Return how many messages were really sent, by email."""
        return Counter(entry["id"] for entry in self.entries("accepted"))


@dataclass
class Double:
    """Accepts messages: once for each key if it is idempotent, otherwise at every call.

    `hang`: the call that never returns, "inside" (before it accepts) or "accepted" (after).
    `hang_on`: only for this recipient. `hang_after`: no call returns any more once the process has
    accepted so many. `gate`: calls wait until this file exists. `dies_on`: recipients whose emails
    end the process, like a crash in a library. `delay`: seconds that a call takes.
    """

    ledger: Ledger
    idempotent: bool = True
    batch_size: int = 1
    hang: str | None = None
    hang_on: str | None = None
    hang_after: int | None = None
    gate: str | None = None
    dies_on: tuple[str, ...] = ()
    delay: float = 0.0
    name: str = NAME

    @property
    def kind(self) -> str:
        return "resend" if self.idempotent else "smtp"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(batch_size=self.batch_size, idempotent=self.idempotent)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        self._point("inside", messages)
        if self.delay:
            time.sleep(self.delay)
        if self.gate:
            until(Path(self.gate).exists, "the test opens the gate")
        if self.hang_after is not None and self._accepted() >= self.hang_after:
            hang()
        with self.ledger.alone() as entries:
            seen = {entry["key"]: entry for entry in entries if entry["event"] == "accepted"}
            results = [self._accept(message, entries, seen) for message in messages]
        self._point("left", messages)
        return results

    def _accepted(self) -> int:
        return sum(entry["pid"] == os.getpid() for entry in self.ledger.entries("accepted"))

    def limits(self) -> None: ...

    def check(self) -> Result:
        return Result("sent")

    def close(self) -> None:
        """Do nothing."""

    def _accept(
        self, message: Message, entries: list[dict[str, Any]], seen: dict[str, dict[str, Any]]
    ) -> Result:
        key, content = message.email.key, [message.subject, message.html, message.text]
        before = seen.get(key) if self.idempotent else None
        if before is None:
            entries.append(
                {
                    "event": "accepted",
                    "pid": os.getpid(),
                    "key": key,
                    "id": str(message.email.id),
                    "content": content,
                }
            )
        elif before["content"] != content:
            return Result("uncertain", code="key_reused", message="other content under this key")
        return Result("sent", f"message of {key}")

    def _point(self, point: str, messages: Sequence[Message]) -> None:
        recipients = [message.email.recipient_email for message in messages]
        ids = [str(message.email.id) for message in messages]
        self.ledger.note(point, ids=ids)
        if any(recipient in self.dies_on for recipient in recipients):
            os.abort()
        if self.hang == point and (self.hang_on is None or self.hang_on in recipients):
            hang()


def hang() -> None:
    """Wait until the process is killed."""
    threading.Event().wait(HANG_SECONDS)
