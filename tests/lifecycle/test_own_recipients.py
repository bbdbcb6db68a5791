"""An email's own recipients are masked in every spelling, whoever writes the text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from mailgres.model import Result
from mailgres.safe_errors import redact_addresses
from mailgres.sender.redact import redact
from mailgres.sender.spellings import ORDINARY
from support.queue import WITHOUT_KEYS, Queue
from worker.test_redact import message

PLAIN = "ana.lopez@example.com"
SPELLINGS = {
    "as it is": (PLAIN, "ana.lopez@example.com"),
    "upper case": (PLAIN, "ANA.LOPEZ@EXAMPLE.COM"),
    "URL": (PLAIN, "Ana.Lopez%40Example.com"),
    "URL in a URL": (PLAIN, "ana%252Elopez%2540example.com"),
    "xtext": (PLAIN, "rfc822;ana.lopez+40example.com"),
    "quoted-printable": (PLAIN, "ana.lopez=40example.com"),
    "bounce address": (PLAIN, "ana.lopez=example.com"),
    "decimal entity": (PLAIN, "ana.lopez&#64;example.com"),
    "hexadecimal entity": (PLAIN, "ana&#x2E;lopez&#x40;example.com"),
    "angle brackets of HTML": (PLAIN, "&lt;ana.lopez@example.com&gt;"),
    "angle brackets of a URL": (PLAIN, "%3Cana.lopez+40example.com%3E"),
    "JSON": (PLAIN, r"ana.lopez\u0040example.com"),
    "in words": (PLAIN, "ana.lopez (at) example.com"),
    "in words with brackets": (PLAIN, "Ana.Lopez [AT] example.com"),
    "in bare words": (PLAIN, "ana.lopez at example.com"),
    "spaces": (PLAIN, "ana.lopez @ example.com"),
    "quoted": (PLAIN, '"ana.lopez"@example.com'),
    "mailbox": (PLAIN, "ana.lopez"),
    "mailbox in quotes": (PLAIN, "'Ana.Lopez'"),
    "apostrophe": ("o'brien@example.com", "o'brien (at) example.com"),
    "apostrophe in HTML": ("o'brien@example.com", "o&#39;brien"),
    "apostrophe in a URL": ("o'brien@example.com", "O%27Brien"),
    "apostrophe, escaped": ("o'brien@example.com", r"o\'brien"),
    "plus in a URL": ("ana+lopez@example.com", "ana%2Blopez"),
    "plus in xtext": ("ana+lopez@example.com", "ana+2Blopez+40example.com"),
    "A-label": ("ana.lopez@b\u00fccher.example", "ana.lopez+40xn--bcher-kva.example"),
    "U-label": ("ana.lopez@xn--bcher-kva.example", "ana.lopez (at) b\u00fccher.example"),
    "U-label in a URL": ("ana.lopez@b\u00fccher.example", "ana.lopez%40b%C3%BCcher.example"),
    "beyond ASCII": ("\u00e1\u00f1a.lopez@example.com", "%C3%A1%C3%B1a.lopez"),
    "beyond ASCII, upper case": ("j\u00f6rg.lopez@example.com", "J\u00f6rg.Lopez"),
    "no letter of ASCII": (
        "\u0430\u043d\u0430@example.com",
        "\u0430\u043d\u0430 (at) lopez.eu",
    ),
    "short": ("al@lopez.example", "al (at) lopez.example"),
    "ordinary": ("info@lopez.example", "info+40lopez.example"),
}
PARTS = ("lopez", "brien", "b\u00fccher", "xn--")
TEXTS = ("{} is unknown", "550 no user {}, gone", "at <{}>.", "?to={}&x=1")
spellings = pytest.mark.parametrize(("address", "spelled"), SPELLINGS.values(), ids=SPELLINGS)


def check(masked: str | None) -> None:
    assert masked is not None
    assert "<address>" in masked
    assert [part for part in PARTS if part in masked.lower()] == []


@spellings
def test_a_recipient_is_masked_in_any_spelling_by_sql(
    queue: Queue, address: str, spelled: str
) -> None:
    function = "SELECT mailgres.redact_recipients(%s, %s, %s, %s, %s)"
    for text in TEXTS:
        said = text.format(spelled)
        check(queue.value(function, said, address, None, None, None))
        for place in range(3):
            others: list[list[str] | None] = [None, None, None]
            others[place] = ["bo@example.org", address]
            check(queue.value(function, said, "eva@example.org", *others))


@spellings
def test_a_recipient_is_masked_in_any_spelling_by_the_worker(address: str, spelled: str) -> None:
    for text in TEXTS:
        said = Result("permanent", code="550", message=text.format(spelled))
        email = replace(message().email, recipient_email=address)
        check(redact_addresses(redact(said, replace(message(), email=email)).message or ""))
        email = replace(message().email, recipient_email="eva@example.org", cc=[address])
        check(redact_addresses(redact(said, replace(message(), email=email)).message or ""))


def _finish(queue: Queue, said: str) -> Any:
    return queue.attempt("permanent", message=said).id


def _mark_failed(queue: Queue, said: str) -> Any:
    queue_id = queue.value("SELECT id FROM email_queue")
    queue.run("SELECT mark_email_failed(%s, %s)", queue_id, said)
    return queue_id


def _report_failure(queue: Queue, said: str) -> Any:
    queue_id = queue.attempt("sent").id
    queue.run(
        "SELECT record_email_event(NULL, 'failed', p_queue_id => %s, p_detail => %s)",
        queue_id,
        Jsonb({"text": said}),
    )
    return queue_id


def _cancel(queue: Queue, said: str) -> Any:
    queue_id = queue.value("SELECT id FROM email_queue")
    queue.run("SELECT cancel_email(%s, %s)", queue_id, said)
    return queue_id


def _by_hand(queue: Queue, said: str) -> Any:
    queue.run("UPDATE email_queue SET status = 'failed', error_message = %s", said)
    return queue.value("SELECT id FROM email_queue")


def _import(queue: Queue, said: str) -> Any:
    return queue.value(
        "INSERT INTO email_queue (template_type, recipient_email, cc, bcc, error_message)"
        " SELECT template_type, recipient_email, cc, bcc, %s FROM email_queue RETURNING id",
        said,
    )


WRITERS: dict[str, Callable[[Queue, str], Any]] = {
    "finish": _finish,
    "mark_email_failed": _mark_failed,
    "record_email_event": _report_failure,
    "cancel_email": _cancel,
    "UPDATE by hand": _by_hand,
    "INSERT by hand": _import,
}
SAID = "no ana.lopez (at) example.com, nor o&#39;brien or eva+40example.com"


@pytest.mark.parametrize("writer", WRITERS)
def test_recipients_are_masked_in_errors_from_every_writer(queue: Queue, writer: str) -> None:
    queue.enqueue(recipient_email=PLAIN, cc=["o'brien@example.com"], bcc=["eva@example.com"])
    queue_id = WRITERS[writer](queue, SAID)
    reported = "no <address>, nor <address> or <address>"
    assert queue.email(queue_id).error_message == reported
    logged = {row.error_message for row in queue.log(queue_id) if row.error_message}
    assert logged <= {reported}


def test_a_refused_copy_is_logged_without_its_address(queue: Queue) -> None:
    queue.enqueue(recipient_email=PLAIN, cc=["o'brien@example.com"])
    said = {"code": "550", "message": "O%27Brien unknown", "detail": "O%27Brien unknown"}
    queue_id = queue.attempt("sent", refused_copies=[said]).id
    (logged,) = (row for row in queue.log(queue_id) if row.event == "copy_refused")
    assert (logged.error_message, logged.error_detail) == ("<address> unknown", "O%27Brien unknown")


def test_the_reason_of_an_open_circuit_names_no_recipient(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    for _ in range(5):
        queue.enqueue(recipient_email=PLAIN)
        queue.attempt("transient", account=True, code="down", message="down for ana.lopez")
    (reason,) = {row.reason for row in queue.rows("SELECT reason FROM mailgres.provider_events")}
    assert reason == "down: down for <address>"


UNCHANGED = [
    (PLAIN, "550 5.1.1 no banana.lopezes or diana"),
    ("al@example.com", "al is too short to tell, as in all, al=5 and at"),
    ("info@example.com", "more info in the info of 4.7.0"),
    ("12345@example.com", "12345 octets"),
    ("user@example.com", "550 5.1.1 user unknown: invalid mail at 10.0.0.1"),
]


@pytest.mark.parametrize(("address", "text"), UNCHANGED)
def test_texts_without_recipients_stay_as_they_are(queue: Queue, address: str, text: str) -> None:
    function = "SELECT mailgres.redact_recipients(%s, %s, NULL, NULL, NULL)"
    assert queue.value(function, text, address) == text
    email = replace(message().email, recipient_email=address)
    result = Result("permanent", code="550", message=text)
    assert redact(result, replace(message(), email=email)).message == text


def test_sql_and_the_worker_have_the_same_ordinary_words(queue: Queue) -> None:
    assert set(queue.value("SELECT mailgres.ordinary_words()")) == ORDINARY


UNITS = ["a", "@", '"', "'", "%", "+", "&#", "&#0", " ", "=", "ana", "ana ", "ana at ", "ana%", "("]


@pytest.mark.parametrize("unit", UNITS)
def test_masking_a_long_text_is_fast(queue: Queue, unit: str) -> None:
    """Two thousand characters are read, of however many; each pattern is linear in them."""
    text = unit * (1_000_000 // len(unit))
    queue.run("SET statement_timeout = '2s'")
    others = [f"a'n.a+{n}{unit.strip()}@example.com" for n in range(50)]
    query = "SELECT mailgres.redact_recipients(%s, 'ana@example.com', NULL, %s, NULL)"
    assert len(queue.value(query, text, others)) <= 2000
    start = time.thread_time()
    email = replace(message().email, recipient_email="ana@example.com", cc=others)
    redact(Result("permanent", message=text), replace(message(), email=email))
    assert time.thread_time() - start < 2


def test_an_email_with_strange_recipients_stops_no_outcome(queue: Queue) -> None:
    """Such as a restore from elsewhere brings: arrays of arrays, nulls, very long ones."""
    queue.open_the_door()
    queue_id = queue.enqueue()
    queue.run(
        "UPDATE email_queue SET cc = %s, bcc = %s, also_to = %s, recipient_email = %s",
        [["a@b.cc", None], ["b@b.cc", "c"]],
        [None, ""],
        ["(*+?[\\^$.|{" * 500 + "@b.cc"],
        "***",
    )
    queue.run("UPDATE email_queue SET status = 'failed', error_message = '(*+?[ a@b.cc *** '")
    assert queue.email(queue_id).error_message.startswith("(*+?[ <address>")


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("ana@example.com", "a***@example.com"),
        ("al@example.com", "a***@example.com"),
        ("a@example.com", "***@example.com"),
        ("\u00e1na@b\u00fccher.example", "\u00e1***@b\u00fccher.example"),
        ("ana%40home.example@example.com", "a***@example.com"),
        ("o'brien@example.com", "o***@example.com"),
        ('"ana@home"@example.com', "***"),
        ("ana", "***"),
        ("", "***"),
        (None, None),
    ],
)
def test_analysts_see_the_first_letter_at_most(
    queue: Queue, address: str | None, masked: str | None
) -> None:
    assert queue.value("SELECT mailgres.mask_email(%s)", address) == masked
