"""Payloads become events: every type of every provider, and what strangers may send instead."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resend.webhooks._webhook import WebhookEvent

from mailgres.webhooks import BadPayload, bounces, own, resend, ses
from mailgres.webhooks.events import KINDS, NAMES, REASONS
from mailgres.webhooks.samples import RESEND, SES, About
from mailgres.webhooks.samples import own as own_sample
from mailgres.webhooks.samples import resend as resend_sample
from mailgres.webhooks.samples import ses as ses_sample

ABOUT = About()


def test_every_email_event_of_the_resend_sdk_has_a_name() -> None:
    known = [name for name in get_args(WebhookEvent) if name.startswith("email.")]
    assert list(resend.EVENTS) == known
    assert set(RESEND) == set(known) - {resend.INBOUND}


@pytest.mark.parametrize("kind", RESEND)
def test_resend_events_carry_both_ids_and_the_recipient(kind: str) -> None:
    event = resend.parse(resend_sample(kind, ABOUT), "msg_1")
    assert event.event == (resend.EVENTS[kind] or f"resend.{kind}")
    assert (event.event_id, event.provider_message_id) == ("msg_1", ABOUT.message_id)
    assert event.queue_id == UUID(ABOUT.queue_id)
    assert event.recipient_email == ABOUT.recipient
    assert event.occurred_at is not None
    assert event.occurred_at.isoformat() == "2026-11-18T09:30:12.126000+00:00"
    assert event.detail["type"] == kind
    assert event.detail["recipients_unknown"] is True  # an email with Cc looks the same


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("reached_daily_quota", "quota"), ("invalid_attachment", "other"), (None, "other")],
)
def test_resend_failures_say_whether_it_was_the_quota(reason: str | None, expected: str) -> None:
    payload = resend_sample("email.failed", ABOUT)
    payload["data"]["failed"] = {"reason": reason}
    assert resend.parse(payload, "1").detail["reason"] == expected


def test_a_resend_event_of_several_recipients_names_none_of_them() -> None:
    payload = resend_sample("email.bounced", ABOUT)
    payload["data"]["to"] = ["ana@example.com", "ben@example.com"]
    event = resend.parse(payload, "1")
    assert event.recipient_email is None
    assert event.detail["recipients_unknown"] is True


def test_the_payload_of_a_resend_emulator_is_an_event_though_it_has_no_time_and_no_tags() -> None:
    """What `emulate` 0.11.2 (npm) hands to its webhooks; it does not sign as Svix does."""
    data = {"email_id": "re_1", "to": ["ana@example.com"], "from": "a@example.com", "subject": "x"}
    event = resend.parse({"type": "email.delivered", "data": data}, "msg_1")
    assert (event.event, event.provider_message_id) == ("delivered", "re_1")
    assert (event.recipient_email, event.occurred_at) == ("ana@example.com", None)


def test_resend_tags_may_be_a_list_of_pairs() -> None:
    payload = resend_sample("email.sent", ABOUT)
    payload["data"]["tags"] = [{"name": "mailgres_id", "value": ABOUT.queue_id}]
    assert resend.parse(payload, "1").queue_id == UUID(ABOUT.queue_id)
    for tags in ({"mailgres_id": "no uuid"}, [], None, "x", [1], {"mailgres_id": 7}):
        payload["data"]["tags"] = tags
        assert resend.parse(payload, "1").queue_id is None


def test_a_payload_that_is_not_about_a_sent_email_is_ignored() -> None:
    inbound = {"type": "email.received", "data": {"email_id": "4ef9a417", "to": ["a@example.com"]}}
    contact = {"type": "contact.created", "data": {"id": "e169aa45", "email": "a@example.com"}}
    for payload in (inbound, contact):
        assert not resend.parse(payload, "1").is_about_an_email


@pytest.mark.parametrize(
    ("kind", "subtype", "text", "expected"),
    [
        ("Permanent", "General", "smtp; 550 5.1.1 unknown", ("bounced", "hard", "mailbox_unknown")),
        ("Permanent", "NoEmail", None, ("bounced", "hard", "mailbox_unknown")),
        ("Permanent", "General", None, ("bounced", "hard", "other")),
        ("Permanent", "General", "550 5.7.1 blocked", ("bounced", "hard", "policy")),
        ("Permanent", "General", "552 5.3.4 too big", ("bounced", "hard", "size")),
        ("Permanent", "General", "552 5.2.2 over quota", ("bounced", "soft", "mailbox_full")),
        ("Permanent", "MessageRejected", None, ("bounced", "hard", "policy")),
        ("Permanent", "Suppressed", "5.1.1", ("suppressed", "hard", "other")),
        ("Permanent", "OnAccountSuppressionList", None, ("suppressed", "hard", "other")),
        ("Transient", "MailboxFull", None, ("bounced", "soft", "mailbox_full")),
        ("Temporary", "General", "4.4.7 expired", ("bounced", "soft", "timed_out")),
        ("Transient", "MessageTooLarge", None, ("bounced", "soft", "size")),
        ("Transient", "ContentRejected", None, ("bounced", "soft", "content")),
        ("Transient", "AttachmentRejected", None, ("bounced", "soft", "content")),
        ("Undetermined", "Undetermined", None, ("bounced", "undetermined", "other")),
        (None, None, None, ("bounced", "undetermined", "other")),
        ("Permanent", "General", "5.1.8 bad sender", ("bounced", "hard", "policy")),
        ("Permanent", "General", "see 1.5.1.1.9", ("bounced", "hard", "other")),
    ],
)
def test_a_bounce_is_classified_by_type_subtype_and_status_code(
    kind: str | None, subtype: str | None, text: str | None, expected: tuple[str, str, str]
) -> None:
    assert tuple(bounces.bounce_of(kind, subtype, text)) == expected
    payload = resend_sample("email.bounced", ABOUT)
    payload["data"]["bounce"] = {"type": kind, "subType": subtype, "message": text}
    event = resend.parse(payload, "1")
    assert (event.event, event.detail["kind"], event.detail["reason"]) == expected


def test_the_tables_of_webhooks_have_only_normalised_names_kinds_and_reasons() -> None:
    reasons = {*bounces.REASON_OF_SUBTYPE.values(), *(why for _, why in bounces.REASON_OF_STATUS)}
    assert reasons | set(ses.REASON_OF_DELAY.values()) <= set(REASONS)
    assert set(bounces.KIND_OF_TYPE.values()) <= set(KINDS)
    assert {name for name in resend.EVENTS.values() if name} <= set(NAMES)


SES_EVENTS = {
    "Send": "sent",
    "Delivery": "delivered",
    "Bounce": "bounced",
    "Complaint": "complained",
    "Reject": "rejected",
    "Open": "opened",
    "Click": "clicked",
    "Rendering Failure": "failed",
    "DeliveryDelay": "delayed",
    "Subscription": "unsubscribed",
}


def test_there_is_a_sample_of_every_event_of_ses() -> None:
    assert set(SES) == set(ses.KEYS) == set(SES_EVENTS)


@pytest.mark.parametrize("kind", SES)
def test_ses_events_are_read_from_event_publishing_and_from_notifications(kind: str) -> None:
    payload = ses_sample(kind, ABOUT)
    (event,) = ses.parse(payload, "m1")
    assert event.event == SES_EVENTS[kind]
    assert (event.event_id, event.provider_message_id) == ("m1", ABOUT.message_id)
    assert event.queue_id == UUID(ABOUT.queue_id)
    assert event.occurred_at is not None
    payload["notificationType"] = payload.pop("eventType")
    del payload["mail"]["tags"]
    (again,) = ses.parse(payload, "m1")
    assert (again.event, again.detail, again.queue_id) == (event.event, event.detail, None)


def test_ses_names_each_recipient_that_bounced() -> None:
    payload = ses_sample("Bounce", ABOUT)
    payload["bounce"]["bouncedRecipients"].append(
        {"emailAddress": "Ben <ben@example.com>", "status": "5.2.2", "diagnosticCode": "full"}
    )
    one, two = ses.parse(payload, "m1")
    assert (one.event_id, two.event_id) == ("m1/0", "m1/1")
    assert (one.recipient_email, two.recipient_email) == ("ana@example.com", "ben@example.com")
    assert (one.detail["reason"], two.detail["reason"]) == ("mailbox_unknown", "mailbox_full")


def test_an_ses_complaint_of_several_recipients_names_none_of_them() -> None:
    payload = ses_sample("Complaint", ABOUT)
    (event,) = ses.parse(payload, "m")
    assert event.recipient_email == "ana@example.com"
    payload["complaint"]["complainedRecipients"].append({"emailAddress": "ben@example.com"})
    (event,) = ses.parse(payload, "m")
    assert event.recipient_email is None
    assert event.detail["recipients_unknown"] is True


def test_a_code_without_a_meaning_does_not_hide_the_text_of_a_bounce() -> None:
    found = bounces.bounce_of("Permanent", "General", "5.0.0", "smtp; 550 5.7.1 blocked by policy")
    assert found.reason == "policy"


def test_ses_names_each_recipient_that_got_the_email() -> None:
    payload = ses_sample("Delivery", ABOUT)
    payload["delivery"]["recipients"] = ["ana@example.com", "ben@example.com"]
    assert [e.event for e in ses.parse(payload, "m")] == ["delivered", "delivered"]


def test_a_complaint_of_type_not_spam_is_not_recorded_as_a_complaint() -> None:
    payload = ses_sample("Complaint", ABOUT)
    payload["complaint"]["complaintFeedbackType"] = "not-spam"
    (event,) = ses.parse(payload, "m")
    assert event.event == "ses.complaint"


def test_an_address_on_the_list_of_ses_is_suppressed_not_a_new_complaint() -> None:
    payload = ses_sample("Complaint", ABOUT)
    payload["complaint"]["complaintSubType"] = "OnAccountSuppressionList"
    assert ses.parse(payload, "m")[0].event == "suppressed"


def test_leaving_one_topic_of_ses_is_not_an_unsubscription() -> None:
    payload = ses_sample("Subscription", ABOUT)
    payload["subscription"]["newTopicPreferences"]["unsubscribeAll"] = False
    assert ses.parse(payload, "m")[0].event == "ses.subscription"


def test_events_of_unknown_types_keep_the_name_of_the_provider() -> None:
    (event,) = ses.parse({"eventType": "Brand New", "mail": {"messageId": "1"}}, "m")
    assert event.event == "ses.brand_new"
    payload = {"type": "email.brand_new", "data": {"email_id": "1"}}
    assert resend.parse(payload, "m").event == "resend.email.brand_new"


@pytest.mark.parametrize("payload", [{}, {"type": "email.sent"}, {"data": {}}, {"type": 1}])
def test_a_payload_that_is_no_event_of_resend_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(BadPayload):
        resend.parse(payload, "1")


@pytest.mark.parametrize("payload", [{}, {"eventType": "Send"}, {"mail": {"messageId": "1"}}])
def test_a_payload_that_is_no_event_of_ses_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(BadPayload):
        ses.parse(payload, "1")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def paths(value: Any) -> list[list[Any]]:
    """Every place in a payload."""
    found: list[list[Any]] = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found.append([key])
        if isinstance(inner, dict | list):
            found += [[key, *rest] for rest in paths(inner)]
    return found


@given(st.data())
def test_parsing_a_webhook_never_crashes_whatever_its_fields_hold(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*RESEND, *SES]))
    payload = copy.deepcopy((resend_sample if kind in RESEND else ses_sample)(kind, ABOUT))
    *to, last = data.draw(st.sampled_from(paths(payload)))
    place: Any = payload
    for key in to:
        place = place[key]
    place[last] = data.draw(anything)
    try:
        found = resend.parse(payload, "1") if kind in RESEND else ses.parse(payload, "1")
    except BadPayload:
        return
    for event in found if isinstance(found, list) else [found]:
        assert event.event in NAMES or event.event.startswith(("ses.", "resend."))
        json.dumps(dict(event.detail), allow_nan=False).encode()


def test_the_own_format_has_the_arguments_of_record_email_event() -> None:
    ((provider, event),) = own.parse(own_sample("smtp", ABOUT), "msg_9")
    assert provider == "smtp"
    assert (event.event, event.event_id) == ("bounced", "msg_9")
    assert event.detail == {
        "type": "HardBounce",
        "kind": "hard",
        "reason": "mailbox_unknown",
        "text": "550 5.1.1 no such user here",
    }
    first, second = own.parse([own_sample("a", ABOUT), own_sample("b", ABOUT)], "msg_9")
    assert (first[0], first[1].event_id) == ("a", "msg_9/0")
    assert (second[0], second[1].event_id) == ("b", "msg_9/1")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"provider": None}, "provider is missing"),
        ({"event": ""}, "event is missing"),
        ({"provider_message_id": None}, "queue_id and provider_message_id are missing"),
        ({"queue_id": "7"}, "queue_id has a wrong value"),
        ({"occurred_at": "yesterday"}, "occurred_at has a wrong value"),
        ({"recipient_email": "ana"}, "recipient_email has a wrong value"),
        ({"kind": "harder"}, "kind has a wrong value"),
        ({"reason": ["x"]}, "reason has a wrong value"),
        ({"recipients_unknown": "yes"}, "recipients_unknown has a wrong value"),
        ({"provider_message_id": "x" * 256}, "provider_message_id has a wrong value"),
        ({"bounce": 1}, "unknown key"),
    ],
)
def test_the_own_format_refuses_wrong_values(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadPayload, match=why):
        own.parse({**own_sample("smtp", ABOUT), **change}, "1")


@pytest.mark.parametrize("payload", [[], 1, "x", None, [[]], [{}] * 1001])
def test_the_own_format_refuses_a_body_that_is_no_event(payload: Any) -> None:
    with pytest.raises(BadPayload):
        own.parse(payload, "1")


@given(st.data())
def test_the_own_format_refuses_texts_that_the_database_cannot_store(
    data: st.DataObject,
) -> None:
    texts = st.text(st.characters(codec=None) | st.just("\0"), min_size=1, max_size=4)
    given_ = own_sample("smtp", ABOUT)
    for key in data.draw(st.sets(st.sampled_from(sorted(given_)))):
        given_[key] = data.draw(texts)
    try:
        ((provider, event),) = own.parse(given_, "1")
    except BadPayload:
        return
    texts_ = [provider, event.event, event.event_id, event.provider_message_id or ""]
    texts_ += [event.recipient_email or "", *map(str, event.detail.values())]
    for text in texts_:
        assert "\0" not in text
        text.encode()  # a lone surrogate would raise


def test_the_own_format_keeps_an_unknown_event() -> None:
    ((_, event),) = own.parse({**own_sample("smtp", ABOUT), "event": "autoresponded"}, "1")
    assert (event.event, event.detail["type"]) == ("other.autoresponded", "HardBounce")
