"""What follows from what a provider says: the worker's tries, on the clock of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from mailgres.model import Email, Message, Outcome, Result, Started, Verdict
from mailgres.providers import Capabilities
from mailgres.providers.faulty import Fault, FaultyProvider
from mailgres.sender import Renderer
from support.queue import HOLD, RESEND, Clock
from worker.bench import Bench
from worker.double import NAME, Double

MINUTE = timedelta(minutes=1)


def double(bench: Bench, *faults: Fault, idempotent: bool = True, batch_size: int = 1) -> Any:
    """The double behind faults."""
    bench.use_double(idempotent=idempotent, batch_size=batch_size)
    inner = Double(bench.ledger, idempotent=idempotent, batch_size=batch_size)
    return FaultyProvider(inner, faults)


def accepted(bench: Bench, email: UUID) -> int:
    return bench.ledger.accepted()[str(email)]


def test_retries_follow_the_policy(bench: Bench) -> None:
    clock = Clock(bench.conn)
    email = bench.enqueue()
    provider = double(bench, Fault(calls=frozenset({1, 2, 3}), code="busy", message="later"))
    for retry, wait in enumerate((1, 5, 15), start=1):
        assert bench.drain(provider).retried == 1
        row = bench.email(email)
        assert (row.status, row.retries) == ("pending", retry)
        assert (row.error_class, row.error_code, row.error_message) == (
            "transient",
            "busy",
            "later",
        )
        assert row.next_retry_at == clock.now + wait * MINUTE
        clock.forward(wait * MINUTE - timedelta(seconds=1))
        assert bench.drain(provider).claimed == 0
        clock.forward(timedelta(seconds=1))
    assert bench.drain(provider).sent == 1
    assert accepted(bench, email) == 1
    assert provider.calls == 4


def test_dead_after_the_last(bench: Bench) -> None:
    clock = Clock(bench.conn)
    email = bench.enqueue(max_retries=1)
    provider = double(bench, Fault(rate=1.0))
    assert bench.drain(provider).retried == 1
    clock.forward(MINUTE)
    assert bench.drain(provider).dead == 1
    row = bench.email(email)
    assert (row.status, row.dead_reason, row.retries) == ("failed", "exhausted", 1)
    clock.forward(60 * MINUTE)
    assert bench.drain(provider).claimed == 0
    assert provider.calls == 2


@pytest.mark.parametrize("verdict", ["rate", "quota", "config"])
def test_what_spends_no_retry(bench: Bench, verdict: Verdict) -> None:
    email = bench.enqueue(max_retries=0)
    with bench.here(double(bench, Fault(verdict, rate=1.0))) as worker:
        assert worker.drain(once=True).retried == 1
    assert (bench.email(email).status, bench.email(email).retries) == ("pending", 0)


def test_a_drain_waits_for_a_rate_limit(bench: Bench) -> None:
    """The provider says "later" once; that is not a reason to leave the email for the next run."""
    bench.enqueue()
    done = bench.drain(double(bench, Fault("rate", calls=frozenset({1}))))
    assert (done.retried, done.sent) == (1, 1)


def test_a_drain_does_not_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider says nothing but "later"."""
    monkeypatch.setattr("mailgres.worker.worker.WORTH_WAITING", 3.0)
    bench.enqueue()
    done = bench.drain(double(bench, Fault("rate", rate=1.0)))
    assert (done.retried, done.sent) == (2, 0)


def test_permanent(bench: Bench) -> None:
    email = bench.enqueue()
    assert bench.drain(double(bench, Fault("permanent", rate=1.0))).dead == 1
    assert bench.email(email).dead_reason == "permanent"


def test_no_sender(bench: Bench) -> None:
    """Without a from-address nothing is called; it goes when somebody has set one."""
    clock = Clock(bench.conn)
    email = bench.enqueue()
    provider = double(bench)
    assert bench.drain(provider, from_email=None).retried == 1
    row = bench.email(email)
    assert (row.status, row.retries) == ("pending", 0)
    assert (row.error_class, row.error_code) == ("config", "no_sender")
    assert provider.calls == 0
    clock.set(row.next_retry_at)
    assert bench.drain(provider).sent == 1


class TestAnswerLost:
    """The provider accepts, and the worker does not get to know."""

    LOST = Fault("ambiguous", calls=frozenset({1}), accepts=True)

    def test_with_keys(self, bench: Bench) -> None:
        clock = Clock(bench.conn)
        email = bench.enqueue(HOLD)
        provider = double(bench, self.LOST)
        assert bench.drain(provider).retried == 1
        clock.forward(MINUTE)
        assert bench.drain(provider).sent == 1
        assert accepted(bench, email) == 1

    def test_without_keys_hold(self, bench: Bench) -> None:
        email = bench.enqueue(HOLD)
        assert bench.drain(double(bench, self.LOST, idempotent=False)).dead == 1
        assert bench.email(email).dead_reason == "uncertain"
        assert accepted(bench, email) == 1

    def test_without_keys_resend(self, bench: Bench) -> None:
        clock = Clock(bench.conn)
        email = bench.enqueue(RESEND)
        provider = double(bench, self.LOST, idempotent=False)
        assert bench.drain(provider).retried == 1
        clock.forward(MINUTE)
        assert bench.drain(provider).sent == 1
        assert accepted(bench, email) == 2


@dataclass
class Odd:
    """A provider that does what no provider should."""

    results: Sequence[Result] | None
    batch_size: int = 10
    name: str = NAME
    kind: str = "resend"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(batch_size=self.batch_size, idempotent=True)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        if self.results is None:
            raise RuntimeError("a bug")
        return list(self.results)[: len(messages)]

    def limits(self) -> None: ...

    def check(self) -> Result:
        return Result("sent")

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.mark.parametrize(
    ("results", "code"), [(None, "RuntimeError"), ([Result("sent", "1")], "results_missing")]
)
def test_a_bug_in_a_provider(bench: Bench, results: list[Result] | None, code: str) -> None:
    """Nobody knows whether it arrived: with keys all of the call is tried again."""
    bench.use_double()
    bench.fill(3)
    assert bench.drain(Odd(results)).retried == 3
    rows = bench.rows("SELECT error_class, error_code, uncertain_since FROM email_queue")
    assert {(row.error_class, row.error_code) for row in rows} == {("ambiguous", code)}
    assert all(row.uncertain_since for row in rows)


@pytest.mark.parametrize(
    ("odd", "status"),
    [
        (Result("sent", "a\0b"), "sent"),
        (Result("sent", ""), "sent"),
        (Result("sent", None), "sent"),
        (Result("permanent", code="x\0", message="bad \0 byte", detail="\ud800"), "failed"),
    ],
    ids=["nul", "empty", "none", "fault"],
)
def test_an_answer_that_cannot_be_stored(bench: Bench, odd: Result, status: str) -> None:
    """It costs its words, not the outcome, and the others of its batch nothing."""
    bench.use_double()
    bench.fill(3)
    summary = bench.drain(Odd([Result("sent", "1"), odd, Result("sent", "3")]))
    assert summary.sent + summary.dead == summary.claimed == 3
    assert bench.statuses() == ({"sent": 3} if status == "sent" else {"sent": 2, "failed": 1})
    ids = {row.id for row in bench.rows("SELECT provider_message_id AS id FROM email_queue")}
    assert {"1", "3"} < ids


class Clumsy(Renderer):
    """Has a bug that shows with one recipient."""

    def render(self, emails: Sequence[Email]) -> list[Message | Outcome]:
        if any(email.recipient_email == "user1@example.com" for email in emails):
            raise RuntimeError("a bug")
        return super().render(emails)


def test_a_bug_of_our_own(bench: Bench) -> None:
    """Even then the worker goes on, and only the email that shows it is put off."""
    bench.fill(5)
    summary = bench.drain(double(bench, batch_size=5), renderer=Clumsy)
    assert (summary.sent, summary.retried) == (4, 1)
    (row,) = bench.rows("SELECT * FROM email_queue WHERE status = 'pending'")
    assert (row.recipient_email, row.error_code) == ("user1@example.com", "not_prepared")


class Narrow(Renderer):
    """Has a bug that shows with more than one email."""

    def render(self, emails: Sequence[Email]) -> list[Message | Outcome]:
        if len(emails) > 1:
            raise RuntimeError("a bug")
        return super().render(emails)


def test_a_bug_of_our_own_and_an_outage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent alone before the database went away is not sent again after."""
    emails = bench.fill(5, RESEND)
    provider = double(bench, idempotent=False, batch_size=5)
    with bench.here(provider, renderer=Narrow) as worker:
        start, begun = worker.store.start_attempts, []

        def begin_thrice(
            emails: Iterable[Email], lease: timedelta | None, *, checked: bool
        ) -> Started:
            begun.append(emails)
            if len(begun) == 3:
                raise psycopg.OperationalError("away")
            return start(emails, lease, checked=checked)

        monkeypatch.setattr(worker.store, "start_attempts", begin_thrice)
        assert worker.drain().sent == 5
    assert bench.ledger.accepted() == dict.fromkeys(emails, 1)


class Late(Renderer):
    """Somebody changes their mind while the email is being rendered."""

    bench: Bench
    change: str

    def render(self, emails: Sequence[Email]) -> list[Message | Outcome]:
        type(self).bench.run(type(self).change)
        return super().render(emails)


SUPPRESS = """
    INSERT INTO email_suppressions (recipient_email, tenant_id, reason)
    VALUES ('ana@example.com', '*', 'manual')
"""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (SUPPRESS, "cancelled"),
        ("UPDATE email_queue SET expires_at = now() - interval '1 s'", "failed"),
        ("SELECT cancel_email(id) FROM email_queue", "cancelled"),
    ],
    ids=["suppressed", "expired", "cancelled"],
)
def test_not_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch, change: str, status: str) -> None:
    """What changed between claim and call still counts for a provider without keys."""
    monkeypatch.setattr(Late, "bench", bench, raising=False)
    monkeypatch.setattr(Late, "change", change, raising=False)
    email = bench.enqueue()
    provider = double(bench, idempotent=False)
    bench.drain(provider, renderer=Late)
    assert provider.calls == 0
    assert bench.status_of(email) == status
