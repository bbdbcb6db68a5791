"""What is in an email arrives at every provider as it was meant, and nothing else does."""

from __future__ import annotations

import base64
import email
import email.policy
import json
from email.message import EmailMessage
from typing import Any

import psycopg
import pytest

from doubles.resend import ResendDouble
from doubles.ses import SesDouble
from doubles.smtp import SmtpDouble, serve
from e2e.harness import E2eHarness, accepted, once_each

MEGABYTE = 2**20
LOGO = b"\x89PNG and more"
REPORT = b"%PDF-1.7 \x00\xff report"
FILES = json.dumps(
    [
        {
            "filename": "Übersicht 1.pdf",
            "content": base64.b64encode(REPORT).decode(),
            "content_type": "application/pdf",
        },
        {
            "filename": "logo.png",
            "content": base64.b64encode(LOGO).decode(),
            "content_type": "image/png",
            "content_id": "logo",
        },
    ]
)
CONTENT: dict[str, Any] = {
    "subject": "Olá, Ana",
    "html": '<p>Olá <img src="cid:logo"></p>',
    "text": "Olá\n.\nfim",
    "cc": ["cc@example.org"],
    "bcc": ["bcc@example.org"],
    "reply_to": "Help <help@example.com>",
    "headers": {"X-Order": "7"},
}


def check(message: EmailMessage) -> None:
    """What a reader's program shows."""
    assert message["subject"] == CONTENT["subject"]
    assert message["x-order"] == "7"
    assert message["cc"] == "cc@example.org"
    assert "bcc" not in message
    files = {
        part.get_filename(): part.get_content() for part in message.walk() if part.get_filename()
    }
    assert files == {"Übersicht 1.pdf": REPORT, "logo.png": LOGO}
    text = message.get_body(("plain",))
    assert text is not None
    assert text.get_content().splitlines() == ["Olá", ".", "fim"]


def test_resend_gets_attachments_and_content(harness: E2eHarness, resend: ResendDouble) -> None:
    sent = harness.enqueue("inline", attachments=FILES, **CONTENT)
    with_others = harness.send(2)
    assert accepted(resend) == once_each([sent, *with_others])
    body = json.loads(resend.bodies("/emails")[0])
    assert [file["filename"] for file in body["attachments"]] == ["Übersicht 1.pdf", "logo.png"]
    assert base64.b64decode(body["attachments"][0]["content"]) == REPORT
    assert body["attachments"][1]["content_id"] == "logo"
    assert body["headers"] == {"X-Order": "7"}
    assert (body["cc"], body["bcc"]) == (["cc@example.org"], ["bcc@example.org"])


def test_ses_gets_attachments_and_content(harness: E2eHarness, ses: SesDouble) -> None:
    sent = harness.enqueue("inline", attachments=FILES, **CONTENT)
    harness.work()
    assert accepted(ses) == once_each([sent])
    request = ses.accepted()[0]["request"]
    assert request["Destination"]["BccAddresses"] == ["bcc@example.org"]
    raw = base64.b64decode(request["Content"]["Raw"]["Data"])
    check(parsed(raw))


def test_smtp_gets_attachments_and_content(harness: E2eHarness, smtp: SmtpDouble) -> None:
    sent = harness.enqueue("inline", attachments=FILES, **CONTENT)
    harness.work()
    assert accepted(smtp) == once_each([sent])
    (letter,) = smtp.accepted()
    assert set(letter.recipients) == {"ana@example.com", "cc@example.org", "bcc@example.org"}
    check(letter.parsed)


def parsed(raw: bytes) -> EmailMessage:
    return email.message_from_bytes(raw, policy=email.policy.default)


def a_file(size: int) -> str:
    return json.dumps([{"filename": "a.bin", "content": base64.b64encode(bytes(size)).decode()}])


def dead(harness: E2eHarness, queue_id: Any) -> tuple[str, str, str]:
    row = harness.email(queue_id)
    return row.status, row.dead_reason, row.error_class


def test_an_email_too_large_for_ses_dies_before_any_call(
    harness: E2eHarness, ses: SesDouble
) -> None:
    """It dies with its reason, before any call; the others go."""
    large = harness.enqueue(attachments=a_file(31 * MEGABYTE))
    others = harness.send()
    assert dead(harness, large) == ("failed", "permanent", "permanent")
    assert "MB" in harness.email(large).error_message
    assert accepted(ses) == once_each(others)


def test_an_email_too_large_for_the_smtp_server_dies(harness: E2eHarness) -> None:
    with serve(SmtpDouble(largest=MEGABYTE)) as double:
        harness.use_smtp(double)
        large = harness.enqueue(attachments=a_file(2 * MEGABYTE))
        others = harness.send()
        assert dead(harness, large) == ("failed", "permanent", "permanent")
        assert accepted(double) == once_each(others)


def test_an_email_too_large_for_resend_dies_before_any_call(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """It dies with its reason, before any call; the others go."""
    large = harness.enqueue(attachments=a_file(31 * MEGABYTE))
    others = harness.send()
    assert dead(harness, large) == ("failed", "permanent", "permanent")
    assert "MB" in harness.email(large).error_message
    assert resend.calls == {"/emails/batch": 1}
    assert accepted(resend) == once_each(others)


def test_an_email_too_large_for_resend_dies(harness: E2eHarness, resend: ResendDouble) -> None:
    resend.set(largest=MEGABYTE)
    large = harness.enqueue(attachments=a_file(2 * MEGABYTE))
    others = harness.send()
    assert dead(harness, large) == ("failed", "permanent", "permanent")
    assert accepted(resend) == once_each(others)


def test_an_email_too_large_for_the_queue_is_refused(harness: E2eHarness) -> None:
    with pytest.raises(psycopg.Error) as refused:
        harness.enqueue(attachments=a_file(43 * MEGABYTE))
    assert refused.value.sqlstate == "MG014"


INJECTED = "a\r\nBcc: evil@example.net"
INJECTIONS: dict[str, tuple[str, Any]] = {
    "recipient": ("recipient_email", "ana@example.org\r\nBcc: evil@example.net"),
    "subject": ("subject", INJECTED),
    "sender": ("from_email", "A\r\nBcc: evil@example.net <a@example.com>"),
    "reply address": ("reply_to", "a@example.com\nBcc: evil@example.net"),
    "copy": ("cc", ["a@example.org\r\nevil@example.net"]),
    "blind copy": ("bcc", ["a@example.org>\r\nRCPT TO:<evil@example.net"]),
    "value of a header": ("headers", {"X-A": INJECTED}),
    "name of a header": ("headers", {"X-A: 1\r\nBcc": "evil@example.net"}),
    "header of ours": ("headers", {"Bcc": "evil@example.net"}),
    "tag": ("tags", {"a": INJECTED}),
    "file": ("attachments", json.dumps([{"filename": INJECTED, "content": "YQ=="}])),
    "type of a file": (
        "attachments",
        json.dumps([{"filename": "a", "content": "YQ==", "content_type": INJECTED}]),
    ),
}
PLAIN = {"subject": "a", "text": "b"}


@pytest.mark.parametrize("name", INJECTIONS)
def test_injection_is_refused_by_the_queue(harness: E2eHarness, name: str) -> None:
    field, value = INJECTIONS[name]
    with pytest.raises(psycopg.Error) as refused:
        harness.enqueue("inline", **PLAIN | {field: value})
    assert str(refused.value.sqlstate).startswith("MG")
    assert harness.statuses() == {}


@pytest.mark.parametrize("provider", ["resend", "ses", "smtp"])
def test_providers_refuse_injected_headers_that_the_queue_let_through(
    harness: E2eHarness, provider: str, request: pytest.FixtureRequest
) -> None:
    """Without the checks of the table, a provider still gets no other recipients."""
    harness.open_the_door()
    double = request.getfixturevalue(provider)
    columns = {
        "recipient_email": "ana@example.org\r\nBcc: evil@example.net",
        "from_email": "A\r\nBcc: evil@example.net <a@example.com>",
        "subject": INJECTED,
    }
    for column, value in columns.items():
        row = harness.enqueue("inline", **PLAIN)
        harness.run(f"UPDATE email_queue SET {column} = %s WHERE id = %s", value, row)
    good = harness.enqueue("inline", **PLAIN)
    harness.work()
    harness.work_until_nothing_is_due()
    assert harness.status_of(good) == "sent"
    assert accepted(double) == once_each([good])
