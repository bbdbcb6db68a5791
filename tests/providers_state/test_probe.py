"""One call probes a provider whose circuit is open."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.harness import ACCOUNT, DAY, MINUTE, SECOND, ProviderHarness
from support.queue import Clock, report

OPENED, HALF_OPEN, CLOSED = (f"CircuitBreaker{state}" for state in ("Opened", "HalfOpen", "Closed"))
PAUSE = 120 * SECOND


@pytest.fixture
def tripped(harness: ProviderHarness, clock: Clock) -> ProviderHarness:
    """A circuit that opened just now, with a backlog of 21."""
    harness.put(20, next_retry_at=clock.now)
    harness.open_circuit()
    return harness


def probe(harness: ProviderHarness) -> Any:
    """Claim the one email that may be sent."""
    (email,) = harness.claim(limit=10)
    assert harness.circuit() == "half_open"
    assert harness.claim("worker-2", limit=10) == []
    return email


def test_one_email_probes_the_provider_after_the_pause(
    tripped: ProviderHarness, clock: Clock
) -> None:
    clock.forward(PAUSE - SECOND)
    assert tripped.claim() == []
    clock.forward(SECOND)
    probe(tripped)


@pytest.mark.parametrize("answer", ["sent", "permanent", "transient"])
def test_a_successful_probe_closes_the_circuit(
    tripped: ProviderHarness, clock: Clock, answer: str
) -> None:
    clock.forward(PAUSE)
    tripped.finish(report(probe(tripped), answer))
    assert tripped.circuit() == "closed"
    assert len(tripped.claim(limit=20)) == 20
    assert tripped.noted() == [OPENED, HALF_OPEN, CLOSED]
    assert tripped.notes()[2].reason is None
    closed = tripped.provider()
    assert (closed.failures, closed.reopened, closed.circuit_reason) == (0, 0, None)


@pytest.mark.parametrize("answer", ["rate", "quota"])
def test_a_rate_limit_answer_to_a_probe_closes_the_circuit(
    tripped: ProviderHarness, clock: Clock, answer: str
) -> None:
    clock.forward(PAUSE)
    email = probe(tripped)
    tripped.finish(report(email, answer, retry_after=MINUTE, account=True))
    provider = tripped.provider()
    assert (provider.circuit, provider.limited_by) == ("closed", answer)
    assert tripped.email(email.id).next_retry_at == clock.now + MINUTE
    assert tripped.claim() == []
    clock.forward(MINUTE)
    assert len(tripped.claim(limit=21)) == 21


@pytest.mark.parametrize("fault", ["transient", "ambiguous", "config"])
def test_a_failed_probe_doubles_the_pause_of_the_circuit_and_spends_no_retry(
    tripped: ProviderHarness, clock: Clock, fault: str
) -> None:
    for pause in (4, 8, 16, 30, 30):
        clock.set(tripped.provider().circuit_until)
        email = probe(tripped)
        tripped.finish(report(email, fault, **ACCOUNT))
        assert tripped.circuit() == "open"
        assert tripped.provider().circuit_until == clock.now + pause * MINUTE
        after = tripped.email(email.id)
        assert (after.status, after.retries) == ("pending", 0)
    assert tripped.noted() == [OPENED, *[HALF_OPEN, OPENED] * 5]


def test_a_failed_probe_spends_no_retry_of_an_email_without_retries(
    tripped: ProviderHarness, clock: Clock
) -> None:
    tripped.run("UPDATE email_queue SET retries = 3")
    clock.forward(PAUSE)
    email = probe(tripped)
    tripped.finish(report(email, "transient", **ACCOUNT))
    assert tripped.email(email.id).status == "pending"


@pytest.mark.parametrize("fault", ["transient", "ambiguous", "config"])
def test_a_bad_email_does_not_keep_the_circuit_open(
    tripped: ProviderHarness, clock: Clock, fault: str
) -> None:
    (poison,) = tripped.put(priority=1, next_retry_at=clock.now - DAY)
    clock.forward(PAUSE)
    email = probe(tripped)
    assert email.id == poison
    tripped.finish(report(email, fault, **ACCOUNT))
    clock.set(tripped.provider().circuit_until)
    other = probe(tripped)
    assert other.id != poison
    tripped.finish(report(other, "sent"))
    assert tripped.circuit() == "closed"


def test_the_only_email_is_retried_soon(harness: ProviderHarness, clock: Clock) -> None:
    harness.open_circuit()
    clock.forward(PAUSE)
    harness.finish(report(probe(harness), "transient", **ACCOUNT))
    clock.set(harness.provider().circuit_until + SECOND)
    harness.finish(report(probe(harness), "sent"))
    assert harness.statuses() == {"sent": 1}


def test_a_probe_of_a_dead_worker_releases_its_slot(tripped: ProviderHarness, clock: Clock) -> None:
    clock.forward(PAUSE)
    first = probe(tripped)
    clock.forward(59 * SECOND)
    assert tripped.claim() == []
    clock.forward(SECOND)
    second = probe(tripped)
    assert second.lease_token != first.lease_token
    (late,) = tripped.finish(report(first, "sent"))
    assert (late.refused, tripped.circuit()) == ("MG030", "half_open")
    tripped.finish(report(second, "sent"))
    assert tripped.noted() == [OPENED, HALF_OPEN, CLOSED]


def test_a_probe_whose_lease_was_extended_stays_the_only_one(
    tripped: ProviderHarness, clock: Clock
) -> None:
    clock.forward(PAUSE)
    email = probe(tripped)
    clock.forward(50 * SECOND)
    tripped.rows("SELECT mailgres.extend(%s, %s)", email.lease_token, [email.id])
    clock.forward(50 * SECOND)
    assert tripped.claim() == []
    tripped.finish(report(email, "sent"))
    assert tripped.circuit() == "closed"


def test_a_probe_that_is_given_back_frees_the_place_at_once(
    tripped: ProviderHarness, clock: Clock
) -> None:
    clock.forward(PAUSE)
    email = probe(tripped)
    tripped.rows("SELECT mailgres.give_back(%s, %s)", email.lease_token, [email.id])
    probe(tripped)


def test_a_whole_batch_that_may_have_arrived_can_be_the_probe(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    harness.put(30)
    sent = harness.call("ambiguous", 30, batch_size=30)
    harness.put(5)
    harness.run("SELECT mailgres.set_circuit('batches', 'open', 'a test', NULL)")
    harness.run("DELETE FROM email_queue WHERE uncertain_since IS NULL")
    clock.forward(PAUSE)
    again = harness.claim(limit=10)
    assert {email.id for email in again} == {email.id for email in sent}
    harness.report_outcomes(again, "sent")
    assert harness.circuit("batches") == "closed"


def test_no_probe_while_an_operator_pauses_it_or_its_quota_is_used_up(
    tripped: ProviderHarness, clock: Clock
) -> None:
    tripped.run("SELECT mailgres.pause_provider('first')")
    clock.forward(PAUSE)
    assert tripped.claim() == []
    tripped.run("SELECT mailgres.resume_provider('first')")
    tripped.alter("first", limited_until=clock.now + MINUTE, limited_by="quota")
    assert tripped.claim() == []
    clock.forward(MINUTE)
    probe(tripped)


def test_an_operator_can_close_an_open_circuit(tripped: ProviderHarness, clock: Clock) -> None:
    tripped.run("SELECT mailgres.reset_provider('first')")
    assert len(tripped.claim(limit=30)) == 21
    assert tripped.noted() == [OPENED, CLOSED]
    assert tripped.notes()[1].at == clock.now


@pytest.mark.parametrize("fault", ["permanent", "transient"])
def test_a_probe_that_was_never_called_says_nothing_and_frees_the_place(
    tripped: ProviderHarness, clock: Clock, fault: str
) -> None:
    clock.forward(PAUSE)
    email = probe(tripped)
    tripped.finish(report(email, fault, called=False))
    assert (tripped.circuit(), tripped.noted()) == ("half_open", [OPENED, HALF_OPEN])
    other = probe(tripped)
    assert other.id != email.id
    tripped.finish(report(other, "sent"))
    assert tripped.circuit() == "closed"


def test_only_called_emails_of_a_batch_decide_about_the_probe(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    harness.put(3)
    harness.call("ambiguous", 3, batch_size=3)
    harness.run("SELECT mailgres.set_circuit('batches', 'open', 'a test', NULL)")
    clock.forward(PAUSE)
    uncalled, *called = harness.claim(limit=1)
    harness.finish(report(uncalled, "permanent", called=False))
    harness.put()
    assert (harness.claim(), harness.circuit("batches")) == ([], "half_open")
    harness.report_outcomes(called, "transient", batch_size=3, **ACCOUNT)
    assert harness.circuit("batches") == "open"
