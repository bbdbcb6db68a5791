"""Events of SES, as SNS delivers them: one message may be about several recipients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.providers.tags import ID_TAG
from mailgres.webhooks.bounces import bounce_of, reason_of_status
from mailgres.webhooks.events import (
    BadPayload,
    Event,
    address_of,
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
    from collections.abc import Callable, Iterator, Mapping

    Payload = Mapping[str, Any]
    Report = tuple[str | None, list[str], dict[str, Any]]
    """A normalised name, the recipients that it is about, and its detail."""

KEYS = {
    "Send": "send",
    "Delivery": "delivery",
    "Bounce": "bounce",
    "Complaint": "complaint",
    "Reject": "reject",
    "Open": "open",
    "Click": "click",
    "Rendering Failure": "failure",
    "DeliveryDelay": "deliveryDelay",
    "Subscription": "subscription",
}
"""`eventType`, or `notificationType` without event publishing, and the object that describes it."""

PLAIN = {"Send": "sent", "Open": "opened", "Click": "clicked"}
"""Types that mean the same for every recipient of the email."""

REASON_OF_DELAY = {
    "MailboxFull": "mailbox_full",
    "SpamDetected": "reputation",
    "IPFailure": "reputation",
    "TransientCommunicationFailure": "timed_out",
}
"""`delayType` of DeliveryDelay; the others are `other`."""

NOT_A_COMPLAINT = "not-spam"
"""`complaintFeedbackType`: the recipient said that the email is wanted."""


def parse(payload: Payload, event_id: str) -> list[Event]:
    """Return the events of a message; `event_id` is SNS's, the same in every retry."""
    kind = text_in(payload, "eventType", 100) or text_in(payload, "notificationType", 100)
    mail = object_in(payload, "mail")
    if not kind or not mail:
        raise BadPayload("the message is not an event of SES: it has no type, or no mail")
    about = object_in(payload, KEYS.get(kind, ""))
    reports = list(_reports(kind, about, mail)) or [(None, [], {})]
    return [
        Event(
            name or other_name(kind, "ses."),
            event_id if len(reports) == 1 else f"{event_id}/{place}",
            provider_message_id=id_in(mail, "messageId"),
            queue_id=uuid_of(_first(object_in(mail, "tags").get(ID_TAG))),
            occurred_at=time_in(about, "timestamp") or time_in(mail, "timestamp"),
            recipient_email=recipients[0] if len(recipients) == 1 else None,
            detail=detail(type=kind, recipients_unknown=len(recipients) > 1, **why),
        )
        for place, (name, recipients, why) in enumerate(reports)
    ]


def _reports(kind: str, about: Payload, mail: Payload) -> Iterator[Report]:
    if kind in PLAIN:
        yield PLAIN[kind], addresses_in(mail, "destination"), {}
    elif kind in READERS:
        yield from READERS[kind](about, mail)


def _bounces(about: Payload, _mail: Payload) -> Iterator[Report]:
    subtype = text_in(about, "bounceSubType")
    for each in objects_in(about, "bouncedRecipients"):
        text = text_in(each, "diagnosticCode")
        kind = text_in(about, "bounceType")
        found = bounce_of(kind, subtype, text_in(each, "status"), text)
        why = {"kind": found.kind, "reason": found.reason, "text": text or subtype}
        yield found.event, _address(each), why


def _complaints(about: Payload, _mail: Payload) -> Iterator[Report]:
    text = text_in(about, "complaintFeedbackType")
    name: str | None = "complained"
    if text_in(about, "complaintSubType") == "OnAccountSuppressionList":
        name = "suppressed"
    elif text == NOT_A_COMPLAINT:
        name = None
    # They *may* have complained: most providers hide the address, and SES lists all of the domain.
    listed = objects_in(about, "complainedRecipients")
    yield name, [address for each in listed for address in _address(each)], {"text": text}


def _deliveries(about: Payload, mail: Payload) -> Iterator[Report]:
    text = text_in(about, "smtpResponse")
    for each in addresses_in(about, "recipients") or addresses_in(mail, "destination"):
        yield "delivered", [each], {"text": text}


def _delays(about: Payload, _mail: Payload) -> Iterator[Report]:
    kind = text_in(about, "delayType")
    for each in objects_in(about, "delayedRecipients"):
        text = text_in(each, "diagnosticCode")
        reason = REASON_OF_DELAY.get(kind or "") or reason_of_status(text_in(each, "status"), text)
        yield "delayed", _address(each), {"reason": reason or "other", "text": text or kind}


def _rejects(about: Payload, _mail: Payload) -> Iterator[Report]:
    yield "rejected", [], {"reason": "content", "text": text_in(about, "reason")}


def _failures(about: Payload, _mail: Payload) -> Iterator[Report]:
    yield "failed", [], {"reason": "content", "text": text_in(about, "errorMessage")}


def _subscriptions(about: Payload, mail: Payload) -> Iterator[Report]:
    """Only leaving every topic is unsubscribing; other changes are the contact list's affair."""
    left = object_in(about, "newTopicPreferences").get("unsubscribeAll") is True
    source = text_in(about, "source")
    yield "unsubscribed" if left else None, addresses_in(mail, "destination"), {"text": source}


READERS: dict[str, Callable[[Payload, Payload], Iterator[Report]]] = {
    "Delivery": _deliveries,
    "Bounce": _bounces,
    "Complaint": _complaints,
    "Reject": _rejects,
    "Rendering Failure": _failures,
    "DeliveryDelay": _delays,
    "Subscription": _subscriptions,
}
"""Types with a meaning of their own for each recipient, or with a reason."""


def _address(recipient: Payload) -> list[str]:
    address = address_of(recipient.get("emailAddress"))
    return [address] if address else []


def _first(given: object) -> object:
    """SES returns each tag as a list of values."""
    return given[0] if isinstance(given, list) and given else given
