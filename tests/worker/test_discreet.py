"""What a provider says of an email is told without the email's own words."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from mailgres.model import Email, Message, Result
from mailgres.sender.discreet import discreet

PAYLOAD = {
    "name": "Maria Lopez",
    "city": "lisbon",
    "short": "Bo2",
    "account": 12345678,
    "pin": 550,
    "kind": "invalid",
    "more": [{"phone": "+351 912 345 678"}, "mail", "", None, True, "is"],
}


def message() -> Message:
    email = Email(
        id=uuid4(),
        lease_token=uuid4(),
        tenant_id="acme",
        template_type="welcome_user",
        template_version=1,
        recipient_email="maria.lopez@example.com",
        payload=json.dumps(PAYLOAD),
        retries=0,
        max_retries=3,
        generation=1,
        provider="smtp",
        priority=5,
        from_email=None,
        reply_to=None,
        subject=None,
        html=None,
        text=None,
        headers=None,
        tags=None,
        cc=["Bento Dias <bento@example.org>"],
        bcc=["user@example.net"],
        has_attachments=False,
    )
    return Message(email, "mail@acme.example", "desk7@acme.example", "Your order", None, "hello")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("550 mailbox maria.lopez unknown", "550 mailbox <address> unknown"),
        ("no MARIA.LOPEZ here", "no <address> here"),
        ("<maria.lopez@example.com>: no", "<<address>>: no"),
        ("bento or Bento Dias or desk7?", "<address> or <address> or <address>?"),
        ("maria.lopez+news@example.com is away", "<address> is away"),
        ("lisbon@elsewhere.example is away", "<address> is away"),
        ("'Your order' for Maria Lopez of lisbon", "'<content>' for <content> of <content>"),
        ("Bo2, 12345678, +351 912 345 678", "<content>, <content>, <content>"),
        # ordinary texts
        ("550 5.1.1 user unknown: invalid mail", "550 5.1.1 user unknown: invalid mail"),
        ("lisbonne is no mailbox", "lisbonne is no mailbox"),
        ("lisbon_error: lisbon", "lisbon_error: <content>"),
        ("lisbon:4 says lisbon", "lisbon:4 says <content>"),
    ],
)
def test_words_of_the_email(said: str, told: str) -> None:
    result = Result("permanent", code="lisbon:4", message=said, detail=said)
    found = discreet(result, message())
    assert (found.message, found.detail, found.code) == (told, said, "lisbon:4")


def test_nothing_said() -> None:
    result = Result("sent", provider_message_id="1")
    assert discreet(result, message()) is result
