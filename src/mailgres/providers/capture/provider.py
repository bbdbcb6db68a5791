"""Keeps messages in the database instead of sending them: for development."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres.model import Result
from mailgres.providers.base import Capabilities, NotMade
from mailgres.providers.mime import Letter, write
from mailgres.providers.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mailgres.model import Message


NOT_KEPT = Result(
    "permanent", code="not_prepared", message="the database cannot store this message", called=False
)
TOO_SLOW = Result("transient", code="timeout", message="the database took too long to keep it")


class CaptureProvider:
    """Keeps every message under its key, so that a repeated call keeps one."""

    kind = "capture"

    def __init__(
        self,
        keep: Callable[[Sequence[Mapping[str, Any]]], None],
        name: str = "capture",
        *,
        batch_size: int = 100,
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(batch_size=batch_size, idempotent=True)
        self._keep = keep

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Keep all of them; while the database is away, that does not count."""
        entries = [prepare(_entry, message) for message in messages]
        ready = {
            message.email.key: entry
            for message, entry in zip(messages, entries, strict=True)
            if not isinstance(entry, Result)
        }
        kept = self._keep_all(ready)
        return [
            entry if isinstance(entry, Result) else kept[message.email.key]
            for message, entry in zip(messages, entries, strict=True)
        ]

    def _keep_all(self, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Result]:
        """Keep them in one statement; if the database refuses that, each by itself."""
        try:
            self._keep(list(entries.values()))
        except psycopg.errors.QueryCanceled:
            return dict.fromkeys(entries, TOO_SLOW)
        except psycopg.OperationalError as error:
            raise NotMade from error
        except psycopg.Error:
            if len(entries) == 1:
                return dict.fromkeys(entries, NOT_KEPT)
            return {key: self._keep_all({key: each})[key] for key, each in entries.items()}
        return {key: Result("sent", key) for key in entries}

    def limits(self) -> None:
        """It has none."""

    def check(self) -> Result:
        """There is nothing that could be wrong."""
        return Result("sent", untried="it needs none")

    def close(self) -> None:
        """Nothing to let go of."""


def _entry(message: Message) -> Mapping[str, Any]:
    """A message as an element of what is stored; raises if it cannot be written as JSON."""
    entry = {
        "key": message.email.key,
        "queue_id": str(message.email.id),
        "message": as_json(message),
    }
    json.dumps(entry)
    return entry


def as_json(message: Message) -> dict[str, Any]:
    """A message as it is kept. Attachments are named; their content is in mailgres.attachments."""
    email = message.email
    return {
        "from": message.from_email,
        "to": email.recipient_email,
        "also_to": email.also_to,
        "cc": email.cc,
        "bcc": email.bcc,
        "reply_to": message.reply_to,
        "subject": message.subject,
        "html": message.html,
        "text": message.text,
        "headers": email.headers,
        "tags": email.tags,
        "attachments": [file.filename for file in message.attachments],
    }


def as_eml(kept: Mapping[str, Any], message_id: str) -> bytes:
    """A kept message as a mail program opens it."""
    return write(
        Letter(
            from_email=kept["from"],
            to=kept["to"],
            subject=kept["subject"],
            text=kept.get("text"),
            html=kept.get("html"),
            also_to=kept.get("also_to") or (),
            cc=kept.get("cc") or (),
            reply_to=kept.get("reply_to"),
            headers=kept.get("headers") or {},
            message_id=f"<{message_id}@mailgres>",
        )
    )
