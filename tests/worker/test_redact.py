"""Texts of providers are stored without the content of the email."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest

from mailgres.model import ClaimedEmail, Message, Result
from mailgres.providers import Provider
from mailgres.sender.redact import UNREDACTABLE, redact
from mailgres.sender.send import call

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
    email = ClaimedEmail(
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
        also_to=["eva.lind@example.org"],
        cc=["Bento Dias <bento@example.org>"],
        bcc=["user@example.net"],
        has_attachments=False,
    )
    return Message(email, "mail@acme.example", "desk7@acme.example", "Your order", None, "hello")


@pytest.mark.parametrize(
    ("said", "reported"),
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
def test_redact_removes_the_words_of_the_email(said: str, reported: str) -> None:
    result = Result("permanent", code="lisbon:4", message=said, detail=said)
    found = redact(result, message())
    assert (found.message, found.detail, found.code) == (reported, said, "lisbon:4")


@pytest.mark.parametrize("levels", [900, 100_000])
def test_a_deeply_nested_payload_hides_no_value_from_redaction(levels: int) -> None:
    """It hides nothing that Python can read; otherwise the whole text is dropped."""
    deep = replace(message().email, payload="[" * levels + '"lisbon"' + "]" * levels)
    said = Result("permanent", code="no", message="Lisbon?", detail="Lisbon?")
    found = redact(said, replace(message(), email=deep))
    assert found.message in {"<content>?", UNREDACTABLE}
    assert replace(found, message=said.message) == said


class Odd:
    """A custom provider whose results cannot be used."""

    name = "odd"

    def __init__(self, results: Any) -> None:
        self.results = results

    def send(self, _: Sequence[Message]) -> Any:
        return self.results


@pytest.mark.parametrize("results", [None, [None], [3], ["sent"], [], [Result("sent")] * 2])
def test_missing_results_make_a_call_uncertain(results: Any) -> None:
    """The call was made, so it must not count as not made."""
    (outcome,) = call(cast("Provider", Odd(results)), [message()])
    assert (outcome.result.verdict, outcome.result.called) == ("ambiguous", True)


def test_redact_keeps_an_empty_message() -> None:
    result = Result("sent", provider_message_id="1")
    assert redact(result, message()) is result
