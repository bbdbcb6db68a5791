"""A normalised event, as `public.record_email_event` takes it, and how fields are read.

A payload is what a stranger wrote: every field may be missing or of another type. A field that is
wrong is left out; only a payload that is not about an email at all is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

NAMES = (
    "sent",
    "delivered",
    "delayed",
    "bounced",
    "complained",
    "opened",
    "clicked",
    "failed",
    "suppressed",
    "unsubscribed",
    "rejected",
)
"""The normalised names of events."""
KINDS = ("hard", "soft", "undetermined")
"""How final a bounce is."""
REASONS = (
    "mailbox_unknown",
    "mailbox_full",
    "content",
    "size",
    "reputation",
    "policy",
    "timed_out",
    "quota",
    "other",
)
"""Why an email was not delivered."""

_OTHER = re.compile(r"[^A-Za-z0-9.]+")

LONGEST_TEXT = 1000
"""Characters of a provider's explanation that are stored."""
LONGEST_ID = 255
LONGEST_NAME = 100
LONGEST_ADDRESS = 320


class BadPayload(ValueError):
    """A payload that cannot be an event; its text is for the sender of the webhook."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event about one email, or about one of its recipients.

    `event` is one of `NAMES`, or the name of another type, which changes nothing. `detail` has the
    keys `kind`, `reason`, `text`, `recipients_unknown` and `type`, the provider's own name of it.
    """

    event: str
    event_id: str
    provider_message_id: str | None = None
    queue_id: UUID | None = None
    occurred_at: datetime | None = None
    recipient_email: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_about_an_email(self) -> bool:
        """Whether it names an email; others are about contacts, domains and the like."""
        return self.queue_id is not None or self.provider_message_id is not None


def other_name(kind: str, prefix: str) -> str:
    """Return the name of a type that has no normalised one: the provider's own, in plain letters.

    A prefix keeps it from meaning something by accident.
    """
    return f"{prefix}{_OTHER.sub('_', kind).strip('_').lower()}"[:LONGEST_NAME]


def read_json(body: bytes | str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value that a body holds."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadPayload("the body is not JSON") from None


def read_object(body: bytes | str) -> dict[str, Any]:
    """Return the JSON object that a body holds."""
    found = read_json(body)
    if not isinstance(found, dict):
        raise BadPayload("the body is not a JSON object")
    return found


def object_in(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside another, or an empty one."""
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def objects_in(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    found = parent.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def text_in(parent: Mapping[str, Any], key: str, longest: int = LONGEST_TEXT) -> str | None:
    """Return a text that PostgreSQL can store, or None; several texts are joined."""
    found = parent.get(key)
    if isinstance(found, list):
        found = "; ".join(each for each in found if isinstance(each, str))
    return plain(found, longest) if isinstance(found, str) else None


def plain(text: str, longest: int = LONGEST_TEXT) -> str | None:
    """Return a text without NUL and lone surrogates, cut; None if nothing is left."""
    cut = text[:longest].encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
    return cut or None


def id_in(parent: Mapping[str, Any], key: str) -> str | None:
    """Return an id; one that is too long is not ours."""
    found = text_in(parent, key, LONGEST_ID + 1)
    return found if found and len(found) <= LONGEST_ID else None


def uuid_of(given: object) -> UUID | None:
    """Return a uuid, or None."""
    try:
        return UUID(given) if isinstance(given, str) else None
    except ValueError:
        return None


def address_of(given: object) -> str | None:
    """Return the address of `ana@example.com` or `Ana <ana@example.com>`."""
    if not isinstance(given, str) or len(given) > LONGEST_ADDRESS:
        return None
    inside = given.rpartition("<")[2].partition(">")[0].strip()
    return inside if "@" in inside and inside.isprintable() and " " not in inside else None


def addresses_in(parent: Mapping[str, Any], key: str) -> list[str]:
    """Return the addresses of a list, or of one text."""
    found = parent.get(key)
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, Sequence):
        return []
    return [address for each in found if (address := address_of(each))]


def time_in(parent: Mapping[str, Any], key: str) -> datetime | None:
    """Return a time in ISO 8601, or in seconds since 1970; UTC if it names no zone."""
    found = parent.get(key)
    try:
        if isinstance(found, str):
            moment = datetime.fromisoformat(found)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
            return datetime.fromtimestamp(found, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def detail(**given: object) -> dict[str, Any]:
    """Return the detail of an event without what is not known."""
    return {name: value for name, value in given.items() if value}
