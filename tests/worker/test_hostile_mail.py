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
from mailgres.sender.discreet import UNTOLD
from support.queue import RESEND, Clock
from worker.bench import Bench, until
from worker.double import Double

LETTER = "letter"
MEGABYTE = 1_000_000


class Received(NamedTuple):
    """What the provider was given of an email."""

    subject: str
    html: str | None
    text: str


def push(
    bench: Bench,
    subject: str = "Hi",
    text: str = "Hello",
    html: str | None = None,
    name: str = LETTER,
) -> None:
    """Make a template, or another version of it."""
    contents = {"en": {"subject": subject, "html": html, "text": text}}
    bench.run("SELECT mailgres.push_template(%s, %s::jsonb)", name, json.dumps(contents))


def nested(levels: int) -> str:
    """A payload whose `v` is so deep; as JSON, which Python cannot always write."""
    return '{"v":' + "[" * levels + "]" * levels + "}"


def received(bench: Bench, email: UUID) -> Received:
    """What arrived of an email that arrived once."""
    (entry,) = [one for one in bench.ledger.entries("accepted") if one["id"] == str(email)]
    return Received(*entry["content"])


def work(bench: Bench) -> None:
    """Let a process send all there is, in calls of ten emails."""
    with bench.worker(double={"batch_size": 10}) as worker:
        bench.until_settled()
        worker.stop()


def send(bench: Bench, payload: dict[str, Any] | str) -> Received:
    """Send a letter, and return what arrived of it."""
    bench.use_double(batch_size=10)
    email = bench.enqueue(LETTER, payload=payload)
    work(bench)
    assert bench.status_of(email) == "sent"
    return received(bench, email)


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
def test_a_bad_email_dies_alone(bench: Bench, name: str) -> None:
    """It dies with its reason at the first try; the others of its batch are sent, in one call."""
    text, payload, reason = BAD[name]
    push(bench, text=text)
    bench.use_double(batch_size=10)
    with bench.conn.transaction():
        good = [bench.enqueue(), bench.enqueue()]
        bad = bench.enqueue(LETTER, payload=payload)
        good += [bench.enqueue(), bench.enqueue()]
    work(bench)
    # Not with its payload: Python's JSON cannot read what is very deep.
    row = bench.row(FATE, bad)
    assert (row.status, row.dead_reason, row.retries) == ("failed", "permanent", 0)
    assert (row.error_class, row.error_code) == ("permanent", "template_failed")
    assert row.error_message.startswith(f"letter v1 (en), {reason}")
    (call,) = bench.ledger.entries("inside")
    assert sorted(call["ids"]) == sorted(map(str, good))
    assert bench.ledger.accepted() == dict.fromkeys(map(str, good), 1)
    assert bench.value("SELECT max(lease_losses) FROM email_queue") == 0


def test_all_of_them_at_once(bench: Bench) -> None:
    """A queue of nothing but bad emails calls nobody, and the worker goes on to the next one."""
    bench.use_double(batch_size=10)
    for number, (text, payload, _) in enumerate(BAD.values()):
        push(bench, text=text, name=f"letter_{number}")
        bench.enqueue(f"letter_{number}", payload=payload)
    with bench.worker(double={"batch_size": 10}) as worker:
        bench.until_settled()
        assert not bench.ledger.entries("inside")
        good = bench.enqueue()
        bench.until_settled()
        assert worker.stop()["dead"] == len(BAD)
    assert bench.ledger.accepted() == {str(good): 1}


class Refusing(Double):
    """Takes all but the one with a subject of its own, and says why."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        refused = Result("permanent", code="refused", message="no Lisbon here", detail="no Lisbon")
        told = super().send([one for one in messages if one.email.subject is None])
        results = iter(told)
        return [refused if one.email.subject else next(results) for one in messages]


LEFT_OUT = Refusing
"""One of a call is refused."""
NO_ANSWER = Double
"""All are taken, and nobody gets to know."""


@pytest.mark.parametrize("kind", [LEFT_OUT, NO_ANSWER])
def test_deep_and_never_rendered(bench: Bench, kind: type[Double]) -> None:
    """What is said of it cannot be told apart from its payload; the call was made all the same."""
    bench.use_double(idempotent=False, batch_size=10)
    with bench.conn.transaction():
        good = [bench.enqueue(RESEND), bench.enqueue(RESEND)]
        bad = bench.enqueue(RESEND, payload=nested(3000), subject="Lisbon", text="Lisbon")
        good += [bench.enqueue(RESEND), bench.enqueue(RESEND)]
    faults = [LOST] if kind is NO_ANSWER else []
    double = kind(bench.ledger, idempotent=False, batch_size=10)
    bench.drain(FaultyProvider(double, faults))
    assert bench.ledger.accepted() == dict.fromkeys(
        map(str, [*good, bad] if kind is NO_ANSWER else good), 1
    )
    row = bench.row(FATE, bad)
    assert row.error_message == UNTOLD
    if kind is NO_ANSWER:
        assert (row.status, row.error_class, row.error_code) == (
            "pending",
            "ambiguous",
            "simulated",
        )
        return
    assert bench.statuses() == {"sent": 4, "failed": 1}
    assert (row.error_class, row.error_code) == ("permanent", "refused")


def test_as_deep_as_allowed(bench: Bench) -> None:
    push(bench, text="{{ v | tojson }}")
    assert send(bench, nested(64)).text == "[" * 64 + "]" * 64 + "\n"


def test_html(bench: Bench) -> None:
    """It is text in the HTML part, and itself where nothing is HTML."""
    value = """<img src=x onerror="alert('x')"> & <b>"""
    push(bench, "{{ v }}", "{{ v }}", '<p title="{{ v }}">{{ v }}</p>')
    got = send(bench, {"v": value})
    assert got.subject == value
    assert got.text == f"{value}\n"
    escaped = "&lt;img src=x onerror=&quot;alert(&#x27;x&#x27;)&quot;&gt; &amp; &lt;b&gt;"
    assert got.html == f'<p title="{escaped}">{escaped}</p>'


def test_template_syntax(bench: Bench) -> None:
    """What stands in a payload is never taken for a template."""
    value = "{{ 7 * 7 }}{% for x in range(9) %}x{% endfor %}{# gone #}{{ missing }}"
    push(bench, "{{ v }}", "{{ v }}{{ o.v }}", "{{ v }}")
    got = send(bench, {"v": value, "o": {"v": value}})
    assert got == (value, value, f"{value * 2}\n")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\u2028", "\x85", "\x0b", "\x0c"])
def test_line_ends_in_a_subject(bench: Bench, end: str) -> None:
    """No header can be smuggled in: the subject is one line whatever it is made of."""
    push(bench, "Hi {{ name }}", "{{ name }}")
    name = f"Eve{end}Bcc: all@example.com{end}{end}<p>body</p>"
    assert send(bench, {"name": name}).subject == "Hi Eve Bcc: all@example.com <p>body</p>"


def test_a_megabyte(bench: Bench) -> None:
    """A long text arrives whole; a subject made of it is cut."""
    push(bench, "{{ v }}", "{{ v }}", "<p>{{ v }}</p>")
    long = "é" + "x" * MEGABYTE
    got = send(bench, {"v": long})
    assert got.text == f"{long}\n"
    assert got.html == f"<p>{long}</p>"
    assert len(got.subject) == 998


def retire(bench: Bench) -> None:
    bench.run("SELECT mailgres.retire_template(%s)", LETTER)


def edit(bench: Bench) -> None:
    push(bench, "second {{ n }} {{ new }}", "second", "<p>second</p>")


def edit_and_retire(bench: Bench) -> None:
    edit(bench)
    retire(bench)


LOST = Fault("ambiguous", calls=frozenset({1}), accepts=True)
"""The provider accepts the first try, and nobody gets to know: it knows the key and the content."""


@pytest.fixture
def first_try(bench: Bench) -> UUID:
    """An email whose template has one version so far."""
    push(bench, "first {{ n }}", "first", "<p>first</p>")
    bench.use_double()
    return bench.enqueue(LETTER, payload={"n": 1})


def assert_first(bench: Bench, email: UUID) -> None:
    """With another content under the same key it would not have been sent at all."""
    assert bench.status_of(email) == "sent"
    assert received(bench, email) == ("first 1", "<p>first</p>", "first\n")
    assert bench.email(email).template_version == 1


@pytest.mark.parametrize("change", [edit, retire, edit_and_retire])
def test_a_template_changed_between_tries(
    bench: Bench, first_try: UUID, change: Callable[[Bench], None]
) -> None:
    """Another worker tries again; it has never seen the version of the first try, and sends it."""
    clock = Clock(bench.conn)
    provider = FaultyProvider(Double(bench.ledger), [LOST])
    assert bench.drain(provider).retried == 1
    change(bench)
    clock.forward(timedelta(minutes=1))
    assert bench.drain(provider).sent == 1
    assert provider.calls == 2
    assert_first(bench, first_try)


def test_a_template_changed_under_a_worker(bench: Bench, first_try: UUID) -> None:
    """The same worker sends both versions, each to those it was pinned for."""
    clock = Clock(bench.conn)
    provider = FaultyProvider(Double(bench.ledger), [LOST])
    with bench.running(provider) as worker:
        until(lambda: worker.finisher.counts["retried"], "the first try")
        edit(bench)
        second = bench.enqueue(LETTER, payload={"n": 2, "new": "!"})
        until(lambda: bench.status_of(second) == "sent", "the second version is sent")
        retire(bench)
        clock.forward(timedelta(minutes=1))
        until(lambda: bench.status_of(first_try) == "sent", "the first is sent again")
    assert received(bench, second) == ("second 2 !", "<p>second</p>", "second\n")
    assert_first(bench, first_try)
