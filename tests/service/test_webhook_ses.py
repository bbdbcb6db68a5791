"""The webhook of SES, through a real service that asks a double of SNS for certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.ses import feedback

from doubles import ses as ses_double
from doubles import sns as sns_double
from doubles.sns import HOST, PEM, TOPIC, Sns
from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Answer, Site, site
from service.webhook_calls import recorded, unmatched
from support.program import Program
from support.queue import HOLD, report
from worker.harness import until

KEY = "s3cr3t-part-of-the-address"
PATH = f"/webhooks/ses/{KEY}"


@pytest.fixture
def sns(harness: E2eHarness, tmp_path: Path) -> Iterator[Sns]:
    with sns_double.serve(Sns(tmp_path)) as double:
        harness.variables |= double.environ()
        harness.use("ses", ses_webhook_secret=KEY, ses_webhook_topics=TOPIC, ses_region="eu-west-1")
        yield double


@pytest.fixture
def receiver(harness: E2eHarness, sns: Sns) -> Iterator[Site]:  # noqa: ARG001
    with site(harness) as running:
        yield running


def post(running: Site, body: bytes, path: str = PATH) -> Answer:
    """Call as SNS does, which says text/plain."""
    kind = "Content-Type: text/plain; charset=UTF-8"
    return running.ask("POST", path, kind, "x-amz-sns-message-type: Notification", body=body)


def sent_by_ses(harness: E2eHarness) -> samples.About:
    """An email that SES accepted."""
    queue_id = harness.enqueue(HOLD, "ana@example.com")
    email = harness.claim_one()
    harness.start_attempts([email])
    harness.finish(report(email, "sent", provider_message_id="0100019aa2c0"))
    return samples.About("0100019aa2c0", str(queue_id))


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_event_of_ses_is_recorded_for_its_email(
    harness: E2eHarness, receiver: Site, sns: Sns, version: str
) -> None:
    about = sent_by_ses(harness)
    for kind in samples.SES:
        body = sns.notification(json.dumps(samples.ses(kind, about)), version)
        answer = post(receiver, body)
        assert (answer.status, answer.json) == (200, {"recorded": 1}), kind
        assert post(receiver, body).json == {"duplicate": 1}
    found = {row.detail["type"] for row in recorded(harness, about.queue_id)}
    assert found == set(samples.SES)
    assert sns.asked == [PEM]  # fetched once


def test_each_bounced_recipient_of_ses_is_recorded_as_an_event(
    harness: E2eHarness, receiver: Site, sns: Sns
) -> None:
    about = sent_by_ses(harness)
    payload = samples.ses("Bounce", about)
    payload["bounce"]["bouncedRecipients"].append({"emailAddress": "ben@example.com"})
    body = sns.notification(json.dumps(payload))
    assert post(receiver, body).json == {"recorded": 2}
    assert post(receiver, body).json == {"duplicate": 2}
    assert {row.recipient_email for row in recorded(harness, about.queue_id)} == {
        "ana@example.com",
        "ben@example.com",
    }


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"TopicArn": TOPIC + "2"}, "the topic is not among those in the settings"),
        ({"SigningCertURL": f"http://{HOST}{PEM}"}, "the certificate is not one of SNS"),
        ({"SigningCertURL": f"https://sns.example.com{PEM}"}, "the certificate is not one of SNS"),
        ({"SignatureVersion": "3"}, "the version of the signature is unknown"),
    ],
)
def test_an_sns_message_of_another_topic_host_scheme_or_version_is_refused(
    harness: E2eHarness, receiver: Site, sns: Sns, fields: dict[str, Any], why: str
) -> None:
    message = json.dumps(samples.ses("Bounce", samples.About()))
    answer = post(receiver, sns.notification(message, **fields))
    assert answer.status == 403
    assert answer.json["error"].startswith(f"the signature is not accepted: {why}")
    assert not unmatched(harness)
    assert sns.asked in ([], [PEM])


def test_the_ses_webhook_refuses_a_message_that_another_key_signed(
    receiver: Site, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Sns(tmp_path / "other")
    answer = post(receiver, stranger.notification("{}"))
    assert (answer.status, answer.json["error"]) == (
        403,
        "the signature is not accepted: the signature does not match",
    )


@pytest.mark.parametrize(
    ("days", "status", "why"),
    [
        (-2, 403, "the signature is not accepted: the message is more than a day old"),
        (1, 503, "the time of the message is in the future: check the clock"),
    ],
)
def test_an_old_message_is_refused_and_one_of_the_future_is_retried(
    receiver: Site, sns: Sns, days: int, status: int, why: str
) -> None:
    published = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    message = json.dumps(samples.ses("Bounce", samples.About()))
    answer = post(receiver, sns.notification(message, Timestamp=published))
    assert (answer.status, answer.json["error"]) == (status, why)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_the_ses_webhook_answers_a_wrong_secret_with_404(receiver: Site, sns: Sns) -> None:
    body = sns.notification("{}")
    for path in ("/webhooks/ses/" + "x" * len(KEY), PATH + "x", "/webhooks/ses/", PATH[:-1]):
        assert post(receiver, body, path).status == 404
    assert not sns.asked
    assert KEY not in receiver.process.log


def test_sns_is_asked_to_call_again_while_its_certificate_is_not_available(
    receiver: Site, sns: Sns
) -> None:
    sns.broken = True
    answer = post(receiver, sns.notification("{}"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert answer.json["error"] == "the certificate of SNS could not be fetched"


def test_a_subscription_is_confirmed_for_a_topic_of_the_settings_only(
    receiver: Site, sns: Sns
) -> None:
    assert post(receiver, sns.confirmation(TopicArn=TOPIC + "2")).status == 403
    assert not sns.asked
    elsewhere = sns.confirmation(SubscribeURL="https://example.com/?Action=ConfirmSubscription")
    assert post(receiver, elsewhere).json == {"confirmed": 1}
    assert [path.partition("&")[0] for path in sns.asked] == [PEM, "/?Action=ConfirmSubscription"]
    assert "subscribed to a topic" in receiver.process.log


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"nonsense", json.dumps(samples.ses("Bounce", samples.About())).encode()]
)
def test_a_body_that_is_not_a_message_of_sns_is_refused(receiver: Site, body: bytes) -> None:
    answer = post(receiver, body)
    assert answer.status == 400


def test_the_ses_webhook_accepts_the_test_message_of_a_new_event_destination(
    receiver: Site, sns: Sns
) -> None:
    words = "Successfully validated SNS topic for Amazon SES event publishing."
    assert post(receiver, sns.notification(words)).json == {"ignored": 1}
    assert post(receiver, sns.notification('{"no": "event"}')).status == 400


def test_a_webhook_of_ses_without_topics_does_not_start(database_url: str) -> None:
    variables = {
        "MAILGRES_SERVE_SECRET": "a-secret-for-the-tests",
        "MAILGRES_SES_WEBHOOK_SECRET": KEY,
        "MAILGRES_PROVIDERS": "capture",
    }
    what, hint = Program(database_url, variables).fails("serve")
    assert what == "The webhook of ses accepts no topic"
    assert "ses_webhook_topics" in hint


def test_messages_that_motos_sns_signs_are_accepted(
    harness: E2eHarness, sns: Sns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another implementation signs, posts and serves the certificate; the payloads are moto's, too.

    moto's SES itself publishes a message that is no text and has a sentence as its type.
    """
    for name, value in ses_double.environ("").items():
        monkeypatch.setenv(name, value)
    with ses_double.moto() as url, site(harness) as running:
        sns.upstream = url
        topics = boto3.client("sns", endpoint_url=url, region_name="eu-west-1")
        topic = topics.create_topic(Name="mail")["TopicArn"]
        assert topic == TOPIC
        endpoint = f"http://127.0.0.1:{running.port}{PATH}"
        topics.subscribe(TopicArn=topic, Protocol="http", Endpoint=endpoint)
        told = {"Delivery": feedback.DELIVERY, "Bounce": feedback.BOUNCE}
        for kind, about in (told | {"Complaint": feedback.COMPLAINT}).items():
            message = {**feedback.COMMON_MAIL, "notificationType": kind, kind.lower(): about}
            topics.publish(TopicArn=topic, Message=json.dumps(message))
        until(lambda: len(unmatched(harness)) == 4, "all came")
    found = [(row.event, row.detail.get("kind")) for row in unmatched(harness)]
    assert found == [
        ("delivered", None),
        ("bounced", "hard"),
        ("bounced", "hard"),  # each of its two recipients
        ("complained", None),
    ]
