"""Stores messages in the database instead of sending them, for development."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres.model import Result
from mailgres.providers.base import Capabilities, NotMade
from mailgres.providers.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mailgres.model import Message
    from mailgres.providers.base import Keep


NOT_KEPT = Result(
    "permanent", code="not_prepared", message="the database cannot store this message", called=False
)
FAULTS = {
    "timeout": Result("transient", code="timeout", message="a simulated timeout"),
    "reject": Result("permanent", code="rejected", message="a simulated rejection"),
    "unanswered": Result(
        "ambiguous", code="unanswered", message="accepted, but the answer was lost (simulated)"
    ),
}
"""The answers to emails that `mailgres.capture_faults` lets fail. A bounce is reported later."""
TOO_SLOW = Result("transient", code="timeout", message="the database took too long to store it")


class CaptureProvider:
    """Stores every message with its key, so that a repeated call stores it once."""

    kind = "capture"

    def __init__(
        self,
        keep: Keep,
        name: str = "capture",
        *,
        batch_size: int = 100,
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(batch_size=batch_size, idempotent=True)
        self._keep = keep

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Store the messages; while the database is unreachable, raise NotMade."""
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
        """Store the messages in one statement; if the database refuses that, one by one."""
        try:
            faults = self._keep(list(entries.values()))
        except psycopg.errors.QueryCanceled:
            return dict.fromkeys(entries, TOO_SLOW)
        except psycopg.OperationalError as error:
            raise NotMade from error
        except psycopg.Error:
            if len(entries) == 1:
                return dict.fromkeys(entries, NOT_KEPT)
            return {key: self._keep_all({key: each})[key] for key, each in entries.items()}
        return {key: FAULTS.get(faults.get(key, ""), Result("sent", key)) for key in entries}

    def limits(self) -> None:
        """Return None: there are no limits."""

    def check(self) -> Result:
        """Return that no credentials are needed."""
        return Result("sent", untried="it needs none")

    def close(self) -> None:
        """Do nothing: there are no connections."""


def _entry(message: Message) -> Mapping[str, Any]:
    """Return a message as a row to store; raise if it cannot be written as JSON."""
    entry = {
        "key": message.email.key,
        "queue_id": str(message.email.id),
        "message": as_json(message),
    }
    json.dumps(entry)
    return entry


def as_json(message: Message) -> dict[str, Any]:
    """Return a message as it is stored; the content of files is in mailgres.attachments."""
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
