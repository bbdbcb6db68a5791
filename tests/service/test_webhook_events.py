"""The webhook for every other provider: our own format, signed as Standard Webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Answer, Site, site
from service.webhook_calls import OWN, RELAY, RESEND, call, unmatched

PATH = "/webhooks/events"


@pytest.fixture
def receiver(harness: E2eHarness) -> Iterator[Site]:
    harness.use("capture", events_secret=OWN, smtp_webhook_secret=RELAY)
    with site(harness, resend_webhook_secret=RESEND) as running:
        yield running


def post(running: Site, payload: Any, **signed: Any) -> Answer:
    return call(running, payload, PATH, **{"key": OWN, "prefix": "webhook", **signed})


def test_an_event_or_a_list_of_events_is_recorded(harness: E2eHarness, receiver: Site) -> None:
    event = samples.own("postmark", samples.About())
    assert post(receiver, event, name="msg_1").json == {"unmatched": 1}
    assert post(receiver, event, name="msg_1").json == {"duplicate": 1}
    assert post(receiver, [event] * 3, name="msg_2").json == {"unmatched": 3}
    mixed = [{**event, "event_id": "e7"}, {**event, "event_id": "e7"}]
    assert post(receiver, mixed).json == {"unmatched": 1, "duplicate": 1}
    rows = unmatched(harness)
    assert {row.provider for row in rows} == {"postmark"}
    assert rows[0].detail["kind"] == "hard"


def test_an_event_of_a_captured_email_is_recorded(harness: E2eHarness, receiver: Site) -> None:
    queue_id = harness.enqueue("welcome_user", "ana@example.com")
    assert receiver.trigger().json["sent"] == 1
    event = {"provider": "capture", "event": "delivered", "queue_id": str(queue_id)}
    assert post(receiver, event).json == {"recorded": 1}


def test_events_are_recorded_all_or_none(harness: E2eHarness, receiver: Site) -> None:
    event = samples.own("postmark", samples.About())
    answer = post(receiver, [event, {**event, "kind": "harder"}])
    assert (answer.status, answer.json["error"]) == (400, "1: kind has a wrong value")
    assert not unmatched(harness)


def test_an_account_with_a_secret_of_its_own_reports_about_itself_only(receiver: Site) -> None:
    about = samples.About()
    assert post(receiver, samples.own("smtp", about), key=RELAY).json == {"unmatched": 1}
    answer = post(receiver, samples.own("resend", about), key=RELAY)
    assert (answer.status, answer.json["error"]) == (403, "the event is about another provider")


@pytest.mark.parametrize("signed", [{"key": RESEND}, {"ago": 400}, {"prefix": "svix"}])
def test_a_signature_of_another_secret_time_or_kind_is_refused(
    receiver: Site, signed: dict[str, Any]
) -> None:
    assert post(receiver, samples.own("smtp", samples.About()), **signed).status == 401


def test_an_event_signed_by_the_reference_library_is_accepted(receiver: Site) -> None:
    body = json.dumps(samples.own("smtp", samples.About())).encode()
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    signature = Webhook(OWN).sign("msg_9", now, body.decode())
    answer = receiver.ask(
        "POST",
        PATH,
        "webhook-id: msg_9",
        f"webhook-timestamp: {int(now.timestamp())}",
        f"webhook-signature: {signature}",
        body=body,
    )
    assert answer.json == {"unmatched": 1}
