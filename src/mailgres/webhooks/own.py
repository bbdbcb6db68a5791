"""Our own format, for every provider without a reader here: the arguments of record_email_event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.webhooks.events import (
    KINDS,
    LONGEST_ID,
    NAMES,
    REASONS,
    BadPayload,
    Event,
    address_of,
    detail,
    other_name,
    text_in,
    time_in,
    uuid_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIELDS = (
    "provider",
    "event",
    "queue_id",
    "provider_message_id",
    "event_id",
    "occurred_at",
    "recipient_email",
    "kind",
    "reason",
    "text",
    "type",
    "recipients_unknown",
)
"""The keys of an event."""
MOST_EVENTS = 1000
"""Events in one request."""


def parse(payload: object, event_id: str) -> list[tuple[str, Event]]:
    """Return the provider and the event, for each that a body holds: an object or a list of them.

    Unlike a provider's payload, this one is written for us: what is wrong is refused.
    """
    given = payload if isinstance(payload, list) else [payload]
    if not 1 <= len(given) <= MOST_EVENTS:
        raise BadPayload(f"the body is not an event, nor a list of 1 to {MOST_EVENTS}")
    single = not isinstance(payload, list)
    return [
        _event(each, event_id if single else f"{event_id}/{place}", "" if single else f"{place}: ")
        for place, each in enumerate(given)
    ]


def _event(given: object, event_id: str, at: str) -> tuple[str, Event]:
    if not isinstance(given, dict):
        raise BadPayload(f"{at}an event is not a JSON object")
    unknown = [key for key in given if key not in FIELDS]
    if unknown:
        raise BadPayload(f"{at}an event has an unknown key; the keys are {', '.join(FIELDS)}")
    _check(given, at)
    name = text_in(given, "event", 100) or ""
    event = Event(
        name if name in NAMES else other_name(name, "other."),
        text_in(given, "event_id") or event_id,
        provider_message_id=text_in(given, "provider_message_id"),
        queue_id=uuid_of(given.get("queue_id")),
        occurred_at=time_in(given, "occurred_at"),
        recipient_email=address_of(given.get("recipient_email")),
        detail=detail(
            type=text_in(given, "type", 100) or name,
            kind=given.get("kind"),
            reason=given.get("reason"),
            text=text_in(given, "text"),
            recipients_unknown=given.get("recipients_unknown"),
        ),
    )
    return text_in(given, "provider", 100) or "", event


def _check(given: Mapping[str, Any], at: str) -> None:
    """Refuse an event that names no provider, no event or no email, or a field that is wrong."""
    for key in ("provider", "event"):
        if not text_in(given, key, 100):
            raise BadPayload(f"{at}{key} is missing")
    if not (given.get("queue_id") or given.get("provider_message_id")):
        raise BadPayload(f"{at}queue_id and provider_message_id are missing; give one of them")
    readers: dict[str, Callable[[], object]] = {
        "queue_id": lambda: uuid_of(given["queue_id"]),
        "provider_message_id": lambda: _short(given, "provider_message_id"),
        "event_id": lambda: _short(given, "event_id"),
        "occurred_at": lambda: time_in(given, "occurred_at"),
        "recipient_email": lambda: address_of(given["recipient_email"]),
        "kind": lambda: given["kind"] in KINDS,
        "reason": lambda: given["reason"] in REASONS,
        "recipients_unknown": lambda: isinstance(given["recipients_unknown"], bool),
    }
    for key, read in readers.items():
        if given.get(key) is not None and not read():
            raise BadPayload(f"{at}{key} has a wrong value")


def _short(given: Mapping[str, Any], key: str) -> str | None:
    found = text_in(given, key, LONGEST_ID + 1)
    return found if found and len(found) <= LONGEST_ID else None
