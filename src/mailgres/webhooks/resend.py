"""Resend's webhooks: one event in a request, with the email's id and our tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.providers.tags import ID_TAG
from mailgres.webhooks.bounces import bounce_of
from mailgres.webhooks.events import (
    BadPayload,
    Event,
    addresses_in,
    detail,
    id_in,
    object_in,
    objects_in,
    other_name,
    text_in,
    time_in,
    uuid_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

EVENTS: dict[str, str | None] = {
    "email.sent": "sent",
    "email.scheduled": None,
    "email.delivered": "delivered",
    "email.delivery_delayed": "delayed",
    "email.complained": "complained",
    "email.bounced": "bounced",
    "email.opened": "opened",
    "email.clicked": "clicked",
    "email.received": None,
    "email.failed": "failed",
    "email.suppressed": "suppressed",
}
"""The email events of Resend, and their normalised names; None: it has none."""

INBOUND = "email.received"
"""Its email is not one that we sent."""
QUOTA_REASONS = frozenset({"reached_daily_quota", "reached_monthly_quota"})
"""`failed.reason`: Resend accepted the email and did not send it, because a quota was used up."""


def parse(payload: Mapping[str, Any], event_id: str) -> Event:
    """Return the event of a request; `event_id` is its svix-id, the same in every retry.

    An email with Cc or Bcc has an event for each recipient, and none says whose it is: `to` is the
    same in all of them. How many recipients the email has, the database knows.
    """
    kind = text_in(payload, "type", 100)
    data = payload.get("data")
    if not kind or not isinstance(data, dict):
        raise BadPayload("the body is not an event of Resend: it has no type, or no data")
    name, why = _meaning(EVENTS.get(kind), data)
    recipients = addresses_in(data, "to")
    inbound = kind == INBOUND
    return Event(
        name or other_name(kind, "resend."),
        event_id,
        provider_message_id=None if inbound else id_in(data, "email_id"),
        queue_id=None if inbound else _queue_id(data),
        occurred_at=time_in(payload, "created_at"),
        recipient_email=recipients[0] if len(recipients) == 1 else None,
        detail=detail(type=kind, recipients_unknown=True, **why),
    )


def _meaning(name: str | None, data: Mapping[str, Any]) -> tuple[str | None, dict[str, str | None]]:
    """Return the normalised name, which a bounce may change, with kind, reason and text."""
    if name == "bounced":
        given = object_in(data, "bounce")
        text = text_in(given, "message")
        code = text_in(given, "diagnosticCode")
        found = bounce_of(text_in(given, "type"), text_in(given, "subType"), code, text)
        return found.event, {"kind": found.kind, "reason": found.reason, "text": code or text}
    if name == "failed":
        text = text_in(object_in(data, "failed"), "reason")
        return name, {"reason": "quota" if text in QUOTA_REASONS else "other", "text": text}
    if name == "suppressed":
        return name, {"kind": "hard", "text": text_in(object_in(data, "suppressed"), "message")}
    return name, {}


def _queue_id(data: Mapping[str, Any]) -> UUID | None:
    """Return our id from the tags: an object, or the list of pairs that was sent."""
    tag = object_in(data, "tags").get(ID_TAG)
    for pair in objects_in(data, "tags"):
        if pair.get("name") == ID_TAG:
            tag = pair.get("value")
    return uuid_of(tag)
