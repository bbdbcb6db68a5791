"""What follows from the answer of a provider: attempts, on the clock of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from mailgres.model import ClaimedEmail, Message, Outcome, Result, Started, Verdict
from mailgres.providers import Capabilities
from mailgres.providers.faulty import Fault, FaultyProvider
from mailgres.sender import Renderer
from support.queue import HOLD, RESEND, Clock
from worker.double import NAME, Double
from worker.harness import WorkerHarness

MINUTE = timedelta(minutes=1)


def double(
    harness: WorkerHarness, *faults: Fault, idempotent: bool = True, batch_size: int = 1
) -> Any:
    """The double behind faults."""
    harness.use_double(idempotent=idempotent, batch_size=batch_size)
    inner = Double(harness.ledger, idempotent=idempotent, batch_size=batch_size)
    return FaultyProvider(inner, faults)


def accepted(harness: WorkerHarness, email: UUID) -> int:
    return harness.ledger.accepted()[str(email)]


def test_retries_follow_the_policy(harness: WorkerHarness) -> None:
    clock = Clock(harness.conn)
    email = harness.enqueue()
    provider = double(harness, Fault(calls=frozenset({1, 2, 3}), code="busy", message="later"))
    for retry, wait in enumerate((1, 5, 15), start=1):
        assert harness.drain(provider).retried == 1
        row = harness.email(email)
        assert (row.status, row.retries) == ("pending", retry)
        assert (row.error_class, row.error_code, row.error_message) == (
            "transient",
            "busy",
            "later",
        )
        assert row.next_retry_at == clock.now + wait * MINUTE
        clock.forward(wait * MINUTE - timedelta(seconds=1))
        assert harness.drain(provider).claimed == 0
        clock.forward(timedelta(seconds=1))
    assert harness.drain(provider).sent == 1
    assert accepted(harness, email) == 1
    assert provider.calls == 4


def test_an_email_is_dead_after_its_last_retry(harness: WorkerHarness) -> None:
    clock = Clock(harness.conn)
    email = harness.enqueue(max_retries=1)
    provider = double(harness, Fault(rate=1.0))
    assert harness.drain(provider).retried == 1
    clock.forward(MINUTE)
    assert harness.drain(provider).dead == 1
    row = harness.email(email)
    assert (row.status, row.dead_reason, row.retries) == ("failed", "exhausted", 1)
    clock.forward(60 * MINUTE)
    assert harness.drain(provider).claimed == 0
    assert provider.calls == 2


@pytest.mark.parametrize("verdict", ["rate", "quota", "config"])
def test_rate_limits_and_quotas_spend_no_retry(harness: WorkerHarness, verdict: Verdict) -> None:
    email = harness.enqueue(max_retries=0)
    with harness.here(double(harness, Fault(verdict, rate=1.0))) as worker:
        assert worker.drain(once=True).retried == 1
    assert (harness.email(email).status, harness.email(email).retries) == ("pending", 0)


def test_a_drain_waits_for_a_rate_limit(harness: WorkerHarness) -> None:
    """The provider says "later" once; that is not a reason to leave the email for the next run."""
    harness.enqueue()
    done = harness.drain(double(harness, Fault("rate", calls=frozenset({1}))))
    assert (done.retried, done.sent) == (1, 1)


def test_a_drain_waits_for_a_bounded_time(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider says nothing but "later"."""
    monkeypatch.setattr("mailgres.worker.worker.RATE_LIMIT_WAIT_SECONDS", 3.0)
    harness.enqueue()
    done = harness.drain(double(harness, Fault("rate", rate=1.0)))
    assert (done.retried, done.sent) == (2, 0)


def test_a_permanent_fault_makes_a_dead_letter(harness: WorkerHarness) -> None:
    email = harness.enqueue()
    assert harness.drain(double(harness, Fault("permanent", rate=1.0))).dead == 1
    assert harness.email(email).dead_reason == "permanent"


def test_an_email_without_a_sender_is_not_sent(harness: WorkerHarness) -> None:
    """Without a from-address no call is made; the email is sent once one is set."""
    clock = Clock(harness.conn)
    email = harness.enqueue()
    provider = double(harness)
    assert harness.drain(provider, from_email=None).retried == 1
    row = harness.email(email)
    assert (row.status, row.retries) == ("pending", 0)
    assert (row.error_class, row.error_code) == ("config", "no_sender")
    assert provider.calls == 0
    clock.set(row.next_retry_at)
    assert harness.drain(provider).sent == 1


class TestAnswerLost:
    """The provider accepts, and the worker does not get to know."""

    LOST = Fault("ambiguous", calls=frozenset({1}), accepts=True)

    def test_an_answer_lost_with_keys_is_retried_with_the_same_key(
        self, harness: WorkerHarness
    ) -> None:
        clock = Clock(harness.conn)
        email = harness.enqueue(HOLD)
        provider = double(harness, self.LOST)
        assert harness.drain(provider).retried == 1
        clock.forward(MINUTE)
        assert harness.drain(provider).sent == 1
        assert accepted(harness, email) == 1

    def test_an_answer_lost_without_keys_is_held_if_the_template_says_so(
        self, harness: WorkerHarness
    ) -> None:
        email = harness.enqueue(HOLD)
        assert harness.drain(double(harness, self.LOST, idempotent=False)).dead == 1
        assert harness.email(email).dead_reason == "uncertain"
        assert accepted(harness, email) == 1

    def test_an_answer_lost_without_keys_is_sent_again_if_the_template_says_so(
        self, harness: WorkerHarness
    ) -> None:
        clock = Clock(harness.conn)
        email = harness.enqueue(RESEND)
        provider = double(harness, self.LOST, idempotent=False)
        assert harness.drain(provider).retried == 1
        clock.forward(MINUTE)
        assert harness.drain(provider).sent == 1
        assert accepted(harness, email) == 2


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
def test_a_bug_in_a_provider_makes_its_call_uncertain(
    harness: WorkerHarness, results: list[Result] | None, code: str
) -> None:
    """It is unknown whether it arrived: with keys the whole call is retried."""
    harness.use_double()
    harness.fill(3)
    assert harness.drain(Odd(results)).retried == 3
    rows = harness.rows("SELECT error_class, error_code, uncertain_since FROM email_queue")
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
def test_an_answer_that_cannot_be_stored_costs_only_its_text(
    harness: WorkerHarness, odd: Result, status: str
) -> None:
    """It costs its words, not the outcome, and the others of its batch nothing."""
    harness.use_double()
    harness.fill(3)
    summary = harness.drain(Odd([Result("sent", "1"), odd, Result("sent", "3")]))
    assert summary.sent + summary.dead == summary.claimed == 3
    assert harness.statuses() == ({"sent": 3} if status == "sent" else {"sent": 2, "failed": 1})
    ids = {row.id for row in harness.rows("SELECT provider_message_id AS id FROM email_queue")}
    assert {"1", "3"} < ids


class Clumsy(Renderer):
    """Has a bug that shows with one recipient."""

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        if any(email.recipient_email == "user1@example.com" for email in emails):
            raise RuntimeError("a bug")
        return super().render(emails)


def test_a_bug_of_our_own_defers_only_the_email_that_shows_it(harness: WorkerHarness) -> None:
    """Even then the worker goes on, and only the email that shows it is put off."""
    harness.fill(5)
    summary = harness.drain(double(harness, batch_size=5), renderer=Clumsy)
    assert (summary.sent, summary.retried) == (4, 1)
    (row,) = harness.rows("SELECT * FROM email_queue WHERE status = 'pending'")
    assert (row.recipient_email, row.error_code) == ("user1@example.com", "not_prepared")


class Narrow(Renderer):
    """Has a bug that shows with more than one email."""

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        if len(emails) > 1:
            raise RuntimeError("a bug")
        return super().render(emails)


def test_an_email_sent_before_a_bug_and_an_outage_is_not_sent_again(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An email that was sent before the database went away is not sent again afterwards."""
    emails = harness.fill(5, RESEND)
    provider = double(harness, idempotent=False, batch_size=5)
    with harness.here(provider, renderer=Narrow) as worker:
        start, started = worker.store.start_attempts, []

        def begin_thrice(
            emails: Iterable[ClaimedEmail], lease: timedelta | None, *, checked: bool
        ) -> Started:
            started.append(emails)
            if len(started) == 3:
                raise psycopg.OperationalError("away")
            return start(emails, lease, checked=checked)

        monkeypatch.setattr(worker.store, "start_attempts", begin_thrice)
        assert worker.drain().sent == 5
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)


class Late(Renderer):
    """The email is cancelled while it is being rendered."""

    harness: WorkerHarness
    change: str

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        type(self).harness.run(type(self).change)
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
def test_an_attempt_that_must_not_start_is_settled_or_given_back(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, change: str, status: str
) -> None:
    """What changed between claim and call still counts for a provider without keys."""
    monkeypatch.setattr(Late, "harness", harness, raising=False)
    monkeypatch.setattr(Late, "change", change, raising=False)
    email = harness.enqueue()
    provider = double(harness, idempotent=False)
    harness.drain(provider, renderer=Late)
    assert provider.calls == 0
    assert harness.status_of(email) == status
