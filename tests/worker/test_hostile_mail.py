"""Templates and payloads that mean harm: what the provider gets, and what the others suffer.

What counts is what the provider received: none of these emails may take along another one of its
batch, or the worker itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from mailgres.model import Message, Result
from mailgres.providers.faulty import Fault, FaultyProvider
from mailgres.sender.redact import UNREDACTABLE
from support.queue import RESEND, Clock
from worker.double import Double
from worker.harness import WorkerHarness, until

LETTER = "letter"
MEGABYTE = 1_000_000


class Received(NamedTuple):
    """What the provider was given of an email."""

    subject: str
    html: str | None
    text: str


def push(
    harness: WorkerHarness,
    subject: str = "Hi",
    text: str = "Hello",
    html: str | None = None,
    name: str = LETTER,
) -> None:
    """Make a template, or another version of it."""
    contents = {"en": {"subject": subject, "html": html, "text": text}}
    harness.run("SELECT mailgres.push_template(%s, %s::jsonb)", name, json.dumps(contents))


def nested(levels: int) -> str:
    """A payload whose `v` is so deep; as JSON, which Python cannot always write."""
    return '{"v":' + "[" * levels + "]" * levels + "}"


def received(harness: WorkerHarness, email: UUID) -> Received:
    """Return what arrived of an email that arrived once."""
    (entry,) = [one for one in harness.ledger.entries("accepted") if one["id"] == str(email)]
    return Received(*entry["content"])


def work(harness: WorkerHarness) -> None:
    """Let a process send all there is, in calls of ten emails."""
    with harness.worker(double={"batch_size": 10}) as worker:
        harness.until_settled()
        worker.stop()


def send(harness: WorkerHarness, payload: dict[str, Any] | str) -> Received:
    """Send a letter, and return what arrived of it."""
    harness.use_double(batch_size=10)
    email = harness.enqueue(LETTER, payload=payload)
    work(harness)
    assert harness.status_of(email) == "sent"
    return received(harness, email)


class Bad(NamedTuple):
    """A letter that cannot be rendered, and why."""

    text: str
    payload: dict[str, Any] | str
    reason: str


LOOP = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
RECURSION = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"
LONGER = "text: it becomes longer than 1048576 bytes"
BAD = {
    "missing variable": Bad("Hi {{ name }}", {}, "text, line 1: `name` is undefined"),
    "missing deeper": Bad("x\n{{ a.b.c }}", {"a": {}}, "text, line 2: `a.b` is undefined"),
    "endless loop": Bad(LOOP, {}, "text, line 1: it does not come to an end within 200000 steps"),
    "endless recursion": Bad(RECURSION, {}, "text, line 1: invalid operation"),
    "deep": Bad("{{ v }}", nested(65), "payload: it is nested more than 64 levels deep"),
    "deeper": Bad("{{ v }}", nested(3000), "payload: it is nested more than 64 levels deep"),
    "huge": Bad("{{ v }}{{ v }}", {"v": "x" * MEGABYTE}, LONGER),
    "huge by a loop": Bad(
        "{% for i in range(5000) %}{{ v }}{% endfor %}", {"v": "x" * 999}, LONGER
    ),
}


FATE = """
    SELECT status, dead_reason, retries, error_class, error_code, error_message
    FROM email_queue WHERE id = %s
"""


@pytest.mark.parametrize("name", BAD)
def test_a_bad_email_dies_alone(harness: WorkerHarness, name: str) -> None:
    """It dies at the first attempt with its reason; the rest of its batch is sent in one call."""
    text, payload, reason = BAD[name]
    push(harness, text=text)
    harness.use_double(batch_size=10)
    with harness.conn.transaction():
        good = [harness.enqueue(), harness.enqueue()]
        bad = harness.enqueue(LETTER, payload=payload)
        good += [harness.enqueue(), harness.enqueue()]
    work(harness)
    # Not with its payload: Python's JSON cannot read what is very deep.
    row = harness.row(FATE, bad)
    assert (row.status, row.dead_reason, row.retries) == ("failed", "permanent", 0)
    assert (row.error_class, row.error_code) == ("permanent", "template_failed")
    assert row.error_message.startswith(f"letter v1 (en), {reason}")
    (call,) = harness.ledger.entries("inside")
    assert sorted(call["ids"]) == sorted(map(str, good))
    assert harness.ledger.accepted() == dict.fromkeys(map(str, good), 1)
    assert harness.value("SELECT max(lease_losses) FROM email_queue") == 0


def test_a_queue_of_only_bad_emails_makes_no_call(harness: WorkerHarness) -> None:
    """A queue of nothing but bad emails calls nobody, and the worker goes on to the next one."""
    harness.use_double(batch_size=10)
    for number, (text, payload, _) in enumerate(BAD.values()):
        push(harness, text=text, name=f"letter_{number}")
        harness.enqueue(f"letter_{number}", payload=payload)
    with harness.worker(double={"batch_size": 10}) as worker:
        harness.until_settled()
        assert not harness.ledger.entries("inside")
        good = harness.enqueue()
        harness.until_settled()
        assert worker.stop()["dead"] == len(BAD)
    assert harness.ledger.accepted() == {str(good): 1}


class Refusing(Double):
    """Takes all but the one with a subject of its own, and says why."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        refused = Result("permanent", code="refused", message="no Lisbon here", detail="no Lisbon")
        reported = super().send([one for one in messages if one.email.subject is None])
        results = iter(reported)
        return [refused if one.email.subject else next(results) for one in messages]


LEFT_OUT = Refusing
"""One of a call is refused."""
NO_ANSWER = Double
"""All are taken, and nobody gets to know."""


@pytest.mark.parametrize("kind", [LEFT_OUT, NO_ANSWER])
def test_a_payload_too_deep_to_redact_hides_the_providers_message(
    harness: WorkerHarness, kind: type[Double]
) -> None:
    """Its error cannot be distinguished from its payload, although the call was made."""
    harness.use_double(idempotent=False, batch_size=10)
    with harness.conn.transaction():
        good = [harness.enqueue(RESEND), harness.enqueue(RESEND)]
        bad = harness.enqueue(RESEND, payload=nested(3000), subject="Lisbon", text="Lisbon")
        good += [harness.enqueue(RESEND), harness.enqueue(RESEND)]
    faults = [LOST] if kind is NO_ANSWER else []
    double = kind(harness.ledger, idempotent=False, batch_size=10)
    harness.drain(FaultyProvider(double, faults))
    assert harness.ledger.accepted() == dict.fromkeys(
        map(str, [*good, bad] if kind is NO_ANSWER else good), 1
    )
    row = harness.row(FATE, bad)
    assert row.error_message == UNREDACTABLE
    if kind is NO_ANSWER:
        assert (row.status, row.error_class, row.error_code) == (
            "pending",
            "ambiguous",
            "simulated",
        )
        return
    assert harness.statuses() == {"sent": 4, "failed": 1}
    assert (row.error_class, row.error_code) == ("permanent", "refused")


def test_a_payload_as_deep_as_allowed_is_sent(harness: WorkerHarness) -> None:
    push(harness, text="{{ v | tojson }}")
    assert send(harness, nested(64)).text == "[" * 64 + "]" * 64 + "\n"


def test_html_in_a_payload_is_escaped(harness: WorkerHarness) -> None:
    """It is text in the HTML part, and itself where nothing is HTML."""
    value = """<img src=x onerror="alert('x')"> & <b>"""
    push(harness, "{{ v }}", "{{ v }}", '<p title="{{ v }}">{{ v }}</p>')
    got = send(harness, {"v": value})
    assert got.subject == value
    assert got.text == f"{value}\n"
    escaped = "&lt;img src=x onerror=&quot;alert(&#x27;x&#x27;)&quot;&gt; &amp; &lt;b&gt;"
    assert got.html == f'<p title="{escaped}">{escaped}</p>'


def test_template_syntax_in_a_payload_is_not_rendered(harness: WorkerHarness) -> None:
    """What stands in a payload is never taken for a template."""
    value = "{{ 7 * 7 }}{% for x in range(9) %}x{% endfor %}{# gone #}{{ missing }}"
    push(harness, "{{ v }}", "{{ v }}{{ o.v }}", "{{ v }}")
    got = send(harness, {"v": value, "o": {"v": value}})
    assert got == (value, value, f"{value * 2}\n")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\u2028", "\x85", "\x0b", "\x0c"])
def test_line_ends_in_a_subject_add_no_header(harness: WorkerHarness, end: str) -> None:
    """No header can be smuggled in: the subject is one line whatever it is made of."""
    push(harness, "Hi {{ name }}", "{{ name }}")
    name = f"Eve{end}Bcc: all@example.com{end}{end}<p>body</p>"
    assert send(harness, {"name": name}).subject == "Hi Eve Bcc: all@example.com <p>body</p>"


def test_a_megabyte_of_text_is_sent_and_its_subject_cut(harness: WorkerHarness) -> None:
    """A long text arrives whole; a subject made of it is cut."""
    push(harness, "{{ v }}", "{{ v }}", "<p>{{ v }}</p>")
    long = "é" + "x" * MEGABYTE
    got = send(harness, {"v": long})
    assert got.text == f"{long}\n"
    assert got.html == f"<p>{long}</p>"
    assert len(got.subject) == 998


def retire(harness: WorkerHarness) -> None:
    harness.run("SELECT mailgres.retire_template(%s)", LETTER)


def edit(harness: WorkerHarness) -> None:
    push(harness, "second {{ n }} {{ new }}", "second", "<p>second</p>")


def edit_and_retire(harness: WorkerHarness) -> None:
    edit(harness)
    retire(harness)


LOST = Fault("ambiguous", calls=frozenset({1}), accepts=True)
"""The provider accepts the first attempt, and its answer is lost: it knows key and content."""


@pytest.fixture
def first_try(harness: WorkerHarness) -> UUID:
    """An email whose template has one version so far."""
    push(harness, "first {{ n }}", "first", "<p>first</p>")
    harness.use_double()
    return harness.enqueue(LETTER, payload={"n": 1})


def assert_first(harness: WorkerHarness, email: UUID) -> None:
    """With another content under the same key it would not have been sent at all."""
    assert harness.status_of(email) == "sent"
    assert received(harness, email) == ("first 1", "<p>first</p>", "first\n")
    assert harness.email(email).template_version == 1


@pytest.mark.parametrize("change", [edit, retire, edit_and_retire])
def test_a_template_changed_between_attempts_is_sent_as_first_rendered(
    harness: WorkerHarness, first_try: UUID, change: Callable[[WorkerHarness], None]
) -> None:
    """Another worker retries; it has never seen the version of the first attempt, and sends it."""
    clock = Clock(harness.conn)
    provider = FaultyProvider(Double(harness.ledger), [LOST])
    assert harness.drain(provider).retried == 1
    change(harness)
    clock.forward(timedelta(minutes=1))
    assert harness.drain(provider).sent == 1
    assert provider.calls == 2
    assert_first(harness, first_try)


def test_a_worker_sends_each_email_with_the_template_version_it_was_pinned_to(
    harness: WorkerHarness, first_try: UUID
) -> None:
    """The same worker sends both versions, each to those it was pinned for."""
    clock = Clock(harness.conn)
    provider = FaultyProvider(Double(harness.ledger), [LOST])
    with harness.running(provider) as worker:
        until(lambda: worker.finisher.counts["retried"], "the first attempt")
        edit(harness)
        second = harness.enqueue(LETTER, payload={"n": 2, "new": "!"})
        until(lambda: harness.status_of(second) == "sent", "the second version is sent")
        retire(harness)
        clock.forward(timedelta(minutes=1))
        until(lambda: harness.status_of(first_try) == "sent", "the first is sent again")
    assert received(harness, second) == ("second 2 !", "<p>second</p>", "second\n")
    assert_first(harness, first_try)
