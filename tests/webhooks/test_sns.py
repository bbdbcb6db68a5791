"""Messages of SNS: signed by SNS, from a topic of ours, with a certificate from SNS's own host."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from doubles.sns import HOST, PEM, TOPIC, Sns, certificate_of, new_key, pem
from mailgres.webhooks import BadPayload, sns
from mailgres.webhooks.certificates import (
    MOST_CERTIFICATES,
    RETRY_SECONDS,
    Certificates,
    Unavailable,
)
from mailgres.webhooks.signature import BadSignature


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Sns:
    return Sns(tmp_path_factory.mktemp("sns"))


def check(body: bytes, double: Sns, topics: tuple[str, ...] = (TOPIC,), **more: Any) -> list[str]:
    """Verify a message; the addresses that were asked for a certificate."""
    asked: list[str] = []

    def certificate_at(url: str) -> Any:
        asked.append(url)
        return double.certificate

    sns.verify(sns.read_message(body), topics, certificate_at, **more)
    return asked


@pytest.mark.parametrize("version", ["1", "2"])
def test_both_versions_of_sns_signatures_are_accepted(double: Sns, version: str) -> None:
    assert check(double.notification("{}", version), double) == [f"https://{HOST}{PEM}"]
    assert check(double.notification("é\n{}", version, Subject="Hello"), double)


def test_an_sns_confirmation_is_signed_over_its_own_fields(double: Sns) -> None:
    assert check(double.confirmation(), double)


@pytest.mark.parametrize("field", ["Message", "MessageId", "Timestamp", "Subject"])
def test_a_change_of_any_signed_field_of_sns_is_refused(double: Sns, field: str) -> None:
    message = json.loads(double.notification("{}", Subject="Hello"))
    message[field] += "x"
    with pytest.raises(BadSignature, match="does not match"):
        check(json.dumps(message).encode(), double)


def test_an_sns_message_without_a_signed_field_is_refused(double: Sns) -> None:
    message = json.loads(double.notification("{}", Subject="Hello"))
    del message["Subject"]
    with pytest.raises(BadSignature, match="does not match"):
        check(json.dumps(message).encode(), double)


def test_another_sns_topic_is_refused_before_anything_is_fetched(double: Sns) -> None:
    other = TOPIC.replace("mail", "other")
    message = sns.read_message(double.notification("{}", TopicArn=other))
    with pytest.raises(BadSignature, match="topic"):
        sns.verify(message, [TOPIC], pytest.fail)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{HOST}{PEM}",
        f"https://sns.us-east-1.amazonaws.com{PEM}",
        f"https://{HOST}.example.com{PEM}",
        f"https://example.com/{HOST}{PEM}",
        f"https://{HOST}@example.com{PEM}",
        f"https://example.com@{HOST}{PEM}",
        f"https://{HOST}:8443{PEM}",
        f"https://{HOST}{PEM}?x=1",
        f"https://{HOST}{PEM}#x",
        f"https://{HOST}/../{PEM[1:]}",
        f"https://{HOST}/other.pem",
        f"https://{HOST}/SimpleNotificationService-1.crt",
        f"https://{HOST}\\@example.com{PEM}",
        f"https://{HOST}\n{PEM}",
        f" https://{HOST}{PEM}",
        f"HTTPS://{HOST.upper()}{PEM}",
        "https://[::1/x.pem",
        "",
        None,
        7,
    ],
)
def test_an_sns_certificate_of_another_host_is_never_fetched(double: Sns, url: Any) -> None:
    message = sns.read_message(double.notification("{}", SigningCertURL=url))
    with pytest.raises(BadSignature, match="certificate"):
        sns.verify(message, [TOPIC], pytest.fail)


@pytest.mark.parametrize("version", ["", "3", "01", None, 2.0])
def test_unknown_versions_of_sns_signatures_are_refused(double: Sns, version: Any) -> None:
    message = json.loads(double.notification("{}"))
    message["SignatureVersion"] = version
    with pytest.raises(BadSignature):
        check(json.dumps(message).encode(), double)


@pytest.mark.parametrize("signature", ["", "!", "AAAA", None, ["x"]])
def test_malformed_sns_signatures_are_refused(double: Sns, signature: Any) -> None:
    message = json.loads(double.notification("{}"))
    message["Signature"] = signature
    with pytest.raises(BadSignature):
        check(json.dumps(message).encode(), double)


def test_an_sns_message_that_another_key_signed_is_refused(double: Sns, tmp_path: Path) -> None:
    with pytest.raises(BadSignature, match="does not match"):
        check(Sns(tmp_path).notification("{}"), double)


def test_an_expired_sns_certificate_is_refused(double: Sns) -> None:
    later = datetime.now(UTC) + timedelta(days=30)
    with pytest.raises(BadSignature, match="not valid now"):
        check(double.notification("{}"), double, now=later)


NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)


def checked_at(double: Sns, published: str, **more: Any) -> list[str]:
    """Verify a message that was published then, at NOW; its certificate is valid."""
    now = datetime.now(UTC)
    shift = (now - NOW) if published else timedelta()
    try:
        stamp = (datetime.fromisoformat(published) + shift).isoformat()
    except ValueError:
        stamp = published
    return check(double.notification("{}", Timestamp=stamp), double, now=now, **more)


@pytest.mark.parametrize(
    "published", ["2026-11-18T09:30:00Z", "2026-11-17T09:30:01Z", "2026-11-18T10:29:59.000Z"]
)
def test_an_sns_message_of_the_last_day_is_accepted(double: Sns, published: str) -> None:
    assert checked_at(double, published)


@pytest.mark.parametrize("published", ["2026-11-17T09:29:59Z", "2025-01-01T00:00:00Z"])
def test_an_old_sns_message_is_refused_though_its_signature_is_right(
    double: Sns, published: str
) -> None:
    with pytest.raises(BadSignature, match="more than a day old"):
        checked_at(double, published)


def test_an_sns_message_of_the_future_has_to_be_sent_again(double: Sns) -> None:
    with pytest.raises(Unavailable, match="in the future"):
        checked_at(double, "2026-11-18T10:30:01Z")


@pytest.mark.parametrize("published", ["yesterday", "2026-13-01T00:00:00Z"])
def test_an_sns_message_without_a_time_is_refused(double: Sns, published: str) -> None:
    with pytest.raises(BadSignature, match="cannot be read"):
        checked_at(double, published)


def test_an_sns_subscription_is_confirmed_only_at_the_host_of_the_topic(double: Sns) -> None:
    body = double.confirmation(SubscribeURL="https://example.com/steal")
    url = sns.confirmation_url(sns.read_message(body))
    assert url.startswith(f"https://{HOST}/?Action=ConfirmSubscription&TopicArn=arn%3Aaws%3Asns")
    assert url.endswith("&Token=2336412f37")
    with pytest.raises(BadPayload, match="not a message of SNS"):
        sns.read_message(double.confirmation(Token=None))


OTHER = TOPIC.replace("mail", "other")
REAL = f"\nMessageId\nreal\nTimestamp\n2026-01-01\nTopicArn\n{OTHER}"


@pytest.mark.parametrize(
    ("signed", "posted"),
    [
        (
            {"TopicArn": OTHER, "Timestamp": "2026-01-01"},
            {"TopicArn": [TOPIC], "Timestamp": f"2026-01-01\nTopicArn\n{OTHER}"},
        ),
        (
            {
                "TopicArn": OTHER,
                "Timestamp": "2026-01-01",
                "MessageId": "real",
                "Message": f"{{}}\nMessageId\nforged\nTimestamp\nt\nTopicArn\n{TOPIC}{' ' * 500}",
            },
            {
                "Message": "{}",
                "MessageId": "forged",
                "Timestamp": "t",
                "TopicArn": TOPIC + " " * 500 + REAL,
            },
        ),
    ],
    ids=["a list as topic", "fields inside a text"],
)
def test_an_sns_signature_of_another_topic_is_not_accepted_for_ours(
    double: Sns, signed: dict[str, Any], posted: dict[str, Any]
) -> None:
    message = json.loads(double.notification("{}", **signed)) | posted
    with pytest.raises((BadPayload, BadSignature)):
        check(json.dumps(message).encode(), double)


def test_sns_in_the_china_partition_has_another_host() -> None:
    assert sns.host_of("arn:aws-cn:sns:cn-north-1:123456789012:x") == (
        "sns.cn-north-1.amazonaws.com.cn"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"eventType": "Bounce", "mail": {}}',
        b'{"Type": "Other", "MessageId": "1", "TopicArn": "x", "Message": "y"}',
        b'{"Type": "Notification", "MessageId": "1", "TopicArn": "x"}',
        b'{"Type": "Notification", "MessageId": 1, "TopicArn": "x", "Message": ""}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_sns_message_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload):
        sns.read_message(body)


def test_an_sns_certificate_is_fetched_once() -> None:
    asked: list[str] = []
    found = pem(certificate_of(new_key()))

    def fetch(url: str) -> bytes:
        asked.append(url)
        return found

    certificates = Certificates(fetch)
    assert certificates.at("a") is certificates.at("a")
    assert asked == ["a"]
    for number in range(MOST_CERTIFICATES):
        certificates.at(str(number))
    certificates.at("a")
    assert asked.count("a") == 2  # no more than so many are kept


def test_a_failed_fetch_of_an_sns_certificate_is_not_repeated_at_once() -> None:
    asked: list[str] = []
    now = [0.0]

    def fetch(url: str) -> bytes:
        asked.append(url)
        if len(asked) == 1:
            raise Unavailable("away")
        return b"not a certificate" if len(asked) == 2 else pem(certificate_of(new_key()))

    certificates = Certificates(fetch, lambda: now[0])
    for expected in (1, 1, 2, 2):
        with pytest.raises(Unavailable):
            certificates.at("a")
        assert len(asked) == expected
        now[0] += RETRY_SECONDS / 2
    assert certificates.at("a").serial_number
