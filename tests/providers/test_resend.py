"""ResendProvider against a server that speaks Resend's API: sending and failing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import resend

from doubles.resend import Fault, ResendDouble, serve
from doubles.resend_faults import FAULTS, OF_THE_ACCOUNT, named
from mailgres.model import Attachment, Message, Result
from mailgres.providers.base import Provider
from mailgres.providers.resend.message import as_params
from mailgres.providers.resend.provider import ResendProvider
from providers.mails import PDF, batch, mail

Open = Callable[..., ResendProvider]
TIMEOUT_SECONDS = 1.0


def one(provider: ResendProvider, message: Message | None = None) -> Result:
    [result] = provider.send([message or mail()])
    return result


# What is sent


def test_the_resend_provider_has_the_provider_interface(provider: ResendProvider) -> None:
    checked: Provider = provider
    assert (checked.name, checked.kind) == ("resend", "resend")
    assert checked.capabilities.idempotent
    assert checked.capabilities.batch_size == 100


def test_a_message_goes_by_itself_under_its_own_key(
    provider: ResendProvider, double: ResendDouble
) -> None:
    message = mail()
    result = one(provider, message)
    [accepted] = double.accepted()
    assert result == Result("sent", accepted["id"])
    assert accepted["path"] == "/emails"
    assert accepted["key"] == message.email.key
    assert accepted["mailgres_id"] == str(message.email.id)


def test_a_batch_goes_in_one_call_under_the_key_of_the_batch(
    provider: ResendProvider, double: ResendDouble
) -> None:
    messages = batch(100)
    results = provider.send(messages)
    accepted = double.accepted()
    assert [result.provider_message_id for result in results] == [each["id"] for each in accepted]
    assert {each["key"] for each in accepted} == {f"mailgres/batch/{messages[0].email.batch_id}"}
    assert double.calls == {"/emails/batch": 1}


def test_a_batch_of_which_one_is_left_keeps_its_key(
    provider: ResendProvider, double: ResendDouble
) -> None:
    first, second = batch(2)
    provider.send([first, second])
    [result] = provider.send([second])
    assert result.verdict == "uncertain"
    assert len(double.accepted()) == 2


def test_attachments_and_messages_without_a_batch_go_by_themselves(
    provider: ResendProvider, double: ResendDouble
) -> None:
    messages = batch(3)
    messages[1:1] = [mail(attachments=[PDF], batch_id=messages[0].email.batch_id), mail()]
    results = provider.send(messages)
    assert double.calls == {"/emails": 2, "/emails/batch": 1}
    ids = {each["mailgres_id"]: each["id"] for each in double.accepted()}
    for message, result in zip(messages, results, strict=True):
        assert result == Result("sent", ids[str(message.email.id)])


def test_every_field_of_a_message_reaches_resend(
    provider: ResendProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def capture(params: Any, options: Any) -> dict[str, str]:
        seen.append((params, options))
        return {"id": "x"}

    monkeypatch.setattr(resend.Emails, "send", capture)
    message = mail(
        recipient_email="ana@example.org",
        cc=["bea@example.org"],
        bcc=["cid@example.org"],
        reply_to="Help, desk <help@example.com>",
        headers={"X-Order": "7"},
        tags={"campaign": "Spring sale", "mailgres_id": "forged", "": "x", "empty": ""},
        attachments=[PDF, Attachment("logo.png", "image/png", "logo", b"\x89PNG")],
    )
    one(provider, message)
    [(params, options)] = seen
    assert options == {"idempotency_key": message.email.key}
    assert params == {
        "from": "Shop <noreply@example.com>",
        "to": ["ana@example.org"],
        "cc": ["bea@example.org"],
        "bcc": ["cid@example.org"],
        "reply_to": '"Help, desk" <help@example.com>',
        "subject": "Hello",
        "html": "<p>Hello</p>",
        "text": "Hello",
        "headers": {"X-Order": "7"},
        "tags": [
            {"name": "mailgres_id", "value": str(message.email.id)},
            {"name": "campaign", "value": "Spring_sale"},
        ],
        "attachments": [
            {"filename": "a.pdf", "content": "JVBERg==", "content_type": "application/pdf"},
            {
                "filename": "logo.png",
                "content": "iVBORw==",
                "content_type": "image/png",
                "content_id": "logo",
            },
        ],
    }


def test_tags_with_unusual_characters_are_accepted(
    provider: ResendProvider, double: ResendDouble
) -> None:
    assert one(provider, mail(tags={"größe": "x" * 300, "a.b": "ü"})).verdict == "sent"
    assert len(double.accepted()) == 1


# Faults of a call, single and in a batch. Each is what came back and what it means.


@pytest.mark.parametrize("count", [1, 3], ids=["single", "batch"])
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_resend_has_its_class(
    opened: Open, double: ResendDouble, name: str, count: int
) -> None:
    fault, verdict = FAULTS[name]
    double.add_faults(Fault(**vars(fault)))
    provider = opened()
    messages = batch(count) if count > 1 else [mail()]
    results = provider.send(messages)
    assert len(results) == count
    for result in results:
        assert result.verdict == verdict
        assert result.account == (name in OF_THE_ACCOUNT)
        assert result.pinned == (name in {"concurrent", "other content"})
        assert result.code
        assert result.message
        assert "@" not in result.message
    assert len(double.accepted()) == (count if fault.accepts else 0)


@pytest.mark.parametrize("count", [1, 3], ids=["single", "batch"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(reset=True, accepts=True),
        Fault(status=502, accepts=True),
        Fault(status=200, accepts=True),
        Fault(status=0, accepts=True, drip=0.05),
        Fault(status=0, accepts=True, delay=2 * TIMEOUT_SECONDS),
    ],
    ids=["reset", "502", "html 200", "slow body", "no answer"],
)
def test_a_repeated_call_is_taken_once(
    opened: Open, double: ResendDouble, fault: Fault, count: int
) -> None:
    double.add_faults(Fault(**vars(fault)))
    provider = opened(timeout=TIMEOUT_SECONDS)
    messages = batch(count) if count > 1 else [mail()]
    assert {result.verdict for result in provider.send(messages)} == {"ambiguous"}
    again = opened().send(messages)
    assert [result.verdict for result in again] == ["sent"] * count
    assert double.summary()["accepted"] == count
    assert double.summary()["doubles"] == {}


@pytest.mark.parametrize("count", [1, 3], ids=["single", "batch"])
def test_a_refused_connection_to_resend_is_transient(opened: Open, count: int) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    provider = opened(url=f"http://127.0.0.1:{port}")
    for result in provider.send(batch(count)):
        assert (result.verdict, result.code) == ("transient", "no_connection")


@pytest.mark.parametrize(
    "url",
    ["http://no-such-host.invalid", "nonsense", "ftp://127.0.0.1", "http://[::", "http://:1"],
)
def test_an_unreachable_address_of_resend_is_transient(opened: Open, url: str) -> None:
    result = one(opened(url=url))
    assert (result.verdict, result.code) == ("transient", "no_connection")


def test_a_server_without_tls_is_a_failed_connection(opened: Open, double: ResendDouble) -> None:
    result = one(opened(url=double.url.replace("http:", "https:"), timeout=2.0))
    assert result.verdict in {"transient", "ambiguous"}
    assert double.accepted() == []


def test_a_server_that_does_not_answer_makes_the_call_ambiguous(opened: Open) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        provider = opened(
            url=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=TIMEOUT_SECONDS
        )
        result = one(provider)
    assert (result.verdict, result.code) == ("ambiguous", "no_answer")


def test_a_connection_that_was_closed_while_idle_is_not_a_fault(
    opened: Open, double: ResendDouble
) -> None:
    provider = opened(connections=1)
    assert one(provider).verdict == "sent"
    with serve(ResendDouble()) as other:  # closes its connections when it ends
        elsewhere = opened(url=other.url, connections=1)
        assert one(elsewhere).verdict == "sent"
    result = one(elsewhere)
    assert (result.verdict, result.code) == ("transient", "no_connection")
    assert len(double.accepted()) == 1


def test_the_resend_sdk_does_not_retry_by_itself(
    provider: ResendProvider, double: ResendDouble
) -> None:
    one(provider)
    double.add_faults(Fault(reset=True))
    one(provider)
    assert double.calls["/emails"] == 2


def test_content_that_json_cannot_express_is_a_permanent_fault(
    provider: ResendProvider, double: ResendDouble
) -> None:
    odd: Any = float("nan")
    result = one(provider, mail(text=odd))
    assert (result.verdict, result.code) == ("permanent", "malformed_request")
    assert double.calls == {}


INJECTED = "a\r\nBcc: evil@example.net"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"recipient_email": "ana@example.org\r\nBcc: evil@example.net"}, "invalid_header"),
        ({"recipient_email": "ana@example.org, evil@example.net"}, "invalid_address"),
        ({"cc": ["a@example.org\nevil@example.net"]}, "invalid_header"),
        ({"bcc": ["a@example.org>, <evil@example.net"]}, "invalid_address"),
        ({"from_email": "A\r\nBcc: evil@example.net <a@example.com>"}, "invalid_sender"),
        ({"reply_to": "a@example.com\nBcc: evil@example.net"}, "invalid_sender"),
        ({"subject": INJECTED}, "invalid_header"),
        ({"headers": {"X-A": INJECTED}}, "invalid_header"),
        ({"headers": {"X-A: 1\r\nBcc": "evil@example.net"}}, "invalid_header"),
        ({"headers": {"Bcc": "evil@example.net"}}, "invalid_header"),
        ({"attachments": [Attachment(INJECTED, "text/plain", None, b"")]}, "invalid_header"),
        ({"attachments": [Attachment("a", INJECTED, None, b"")]}, "invalid_attachment"),
        ({"attachments": [Attachment("a", "text/plain", INJECTED, b"")]}, "invalid_attachment"),
        (
            {"attachments": [Attachment("a", "text/plain", None, bytes(31 * 2**20))]},
            "message_too_large",
        ),
    ],
)
def test_emails_that_resend_cannot_send_are_refused_before_the_call(
    provider: ResendProvider, double: ResendDouble, given: dict[str, Any], code: str
) -> None:
    """Nothing of it leaves, and the others of its batch go without it."""
    result = one(provider, mail(**given))
    assert (result.code, result.called) == (code, False)
    assert double.calls == {}
    messages = batch(3)
    messages[1] = mail(batch_id=messages[0].email.batch_id, **given)
    results = provider.send(messages)
    assert [each.verdict == "sent" for each in results] == [True, False, True]
    assert results[1] == result
    sent = [str(message.email.id) for message in (messages[0], messages[2])]
    assert [each["mailgres_id"] for each in double.accepted()] == sent


# Results inside a batch


def test_one_bad_message_does_not_hold_up_the_others(
    provider: ResendProvider, double: ResendDouble
) -> None:
    messages = batch(5)
    messages[2] = mail(batch_id=messages[0].email.batch_id, recipient_email="invalid@example.org")
    results = provider.send(messages)
    assert [result.verdict for result in results] == ["sent", "sent", "permanent", "sent", "sent"]
    ids = {each["mailgres_id"]: each["id"] for each in double.accepted()}
    for message, result in zip(messages, results, strict=True):
        assert result.provider_message_id == ids.get(str(message.email.id))
    assert results[2].code == "validation_error"
    assert [each.verdict for each in provider.send(messages)] == [each.verdict for each in results]
    assert len(double.accepted()) == 4


def test_what_is_wrong_with_one_message_does_not_kill_a_batch(
    provider: ResendProvider, double: ResendDouble
) -> None:
    double.add_faults(named(422, "missing_required_field"), Fault(status=413))
    for _ in range(2):
        assert {result.verdict for result in provider.send(batch(3))} == {"transient"}
    double.add_faults(named(422, "missing_required_field"))
    assert one(provider).verdict == "permanent"


def test_an_unverified_sender_makes_a_resend_batch_transient_and_a_single_email_not(
    provider: ResendProvider, double: ResendDouble
) -> None:
    double.set(unverified=["unknown.example"])
    messages = batch(2)
    messages.append(mail(batch_id=messages[0].email.batch_id, from_email="a@unknown.example"))
    assert {result.verdict for result in provider.send(messages)} == {"transient"}
    alone = one(provider, mail(from_email="a@unknown.example"))
    assert (alone.verdict, alone.account) == ("config", False)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("Shop <a@example.com>", "Shop <a@example.com>"),
        ("Bücher & Co <a@example.com>", "Bücher & Co <a@example.com>"),
        ("evil@example.net, Shop <a@example.com>", '"evil@example.net, Shop" <a@example.com>'),
        ('"Doe, Jane" <a@example.com>', '"Doe, Jane" <a@example.com>'),
        ('a" b <a@example.com>', '"a\\" b" <a@example.com>'),
        ("a@bücher.example", "a@xn--bcher-kva.example"),
    ],
)
def test_a_display_name_brings_no_second_sender(given: str, sent: str) -> None:
    assert as_params(mail(from_email=given))["from"] == sent
