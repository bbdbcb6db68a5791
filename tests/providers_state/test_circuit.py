"""When the circuit of a provider opens, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.harness import ACCOUNT, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import Clock, report

OPENED = "CircuitBreakerOpened"


def fail(harness: ProviderHarness, times: int, **reported: Any) -> None:
    """Let so many calls for different emails fail."""
    for _ in range(times):
        harness.put()
        harness.call("transient", **{**ACCOUNT, **reported})
        harness.run("UPDATE email_queue SET status = 'cancelled' WHERE status = 'pending'")


def test_five_failed_calls_in_a_minute_open_the_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    fail(harness, 4)
    assert harness.circuit() == "closed"
    fail(harness, 1)
    opened = harness.provider()
    assert (opened.circuit, opened.circuit_since) == ("open", clock.now)
    assert opened.circuit_until == clock.now + 120 * SECOND


def test_successes_between_failures_do_not_keep_the_circuit_closed(
    harness: ProviderHarness, clock: Clock
) -> None:
    for _ in range(4):
        fail(harness, 1)
        harness.put()
        harness.call("sent")
        clock.forward(14 * SECOND)
    fail(harness, 1)
    assert harness.circuit() == "open"


def test_rare_failures_between_successes_do_not_open_the_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    for _ in range(12):
        fail(harness, 1)
        harness.put()
        harness.call("sent")
        clock.forward(15 * SECOND)
    assert harness.circuit() == "closed"


def test_five_failures_in_a_row_open_the_circuit_however_slowly(
    harness: ProviderHarness, clock: Clock
) -> None:
    for _ in range(4):
        fail(harness, 1)
        clock.forward(HOUR)
    assert harness.circuit() == "closed"
    fail(harness, 1)
    assert harness.circuit() == "open"


@pytest.mark.parametrize("answer", ["sent", "permanent"])
def test_an_answer_of_the_provider_restarts_the_count_of_failures_in_a_row(
    harness: ProviderHarness, clock: Clock, answer: str
) -> None:
    for times in (4, 4):
        for _ in range(times):
            fail(harness, 1)
            clock.forward(HOUR)
        harness.put()
        harness.call(answer)
    assert harness.circuit() == "closed"


@pytest.mark.parametrize(
    ("outcome", "reported"),
    [
        ("transient", {}),
        ("ambiguous", {}),
        ("config", {}),
        ("permanent", {"account": True}),
        ("rate", {"account": True}),
        ("quota", {"account": True}),
    ],
)
def test_what_is_no_failure_of_the_provider_does_not_count(
    harness: ProviderHarness, clock: Clock, outcome: str, reported: dict[str, Any]
) -> None:
    for _ in range(8):
        harness.put()
        harness.call(outcome, **reported)
        clock.forward(20 * MINUTE)
        harness.run("DELETE FROM email_queue")
    assert (harness.circuit(), harness.provider().failures) == ("closed", 0)


def test_an_ambiguous_outcome_counts_as_a_failure(harness: ProviderHarness, clock: Clock) -> None:
    for _ in range(5):
        harness.put()
        harness.call("ambiguous", **ACCOUNT)
        harness.run("DELETE FROM email_queue")
    assert harness.circuit() == "open"
    assert clock.now == harness.provider().circuit_since


def test_a_batch_that_fails_is_one_failure(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    for number in range(1, 6):
        harness.put(50)
        harness.call("transient", 50, batch_size=50, **ACCOUNT)
        provider = harness.provider("batches")
        assert (provider.failures, provider.circuit) == (number, "closed" if number < 5 else "open")
        harness.run("DELETE FROM email_queue")
        clock.forward(SECOND)


def test_a_fault_of_the_account_opens_it_at_once_and_touches_no_email(
    harness: ProviderHarness, clock: Clock
) -> None:
    (queue_id,) = harness.put(next_retry_at=clock.now - MINUTE)
    before = harness.email(queue_id)
    harness.call("config", code="invalid_api_key", account=True)
    after = harness.email(queue_id)
    assert harness.circuit() == "open"
    assert (after.status, after.next_retry_at, after.retries, after.parked_since) == (
        "pending", before.next_retry_at, 0, None,
    )  # fmt: skip


def test_an_open_circuit_stops_claims_unless_there_is_a_fallback(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.open_circuit()
    clock.forward(SECOND)
    assert harness.claim() == []
    harness.add("second")
    harness.lead("first", "second")
    assert [email.provider for email in harness.claim()] == ["second"]


def test_a_late_success_does_not_close_an_open_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put(3)
    late = harness.claim(limit=3)
    harness.open_circuit()
    until = harness.provider().circuit_until
    clock.forward(SECOND)
    harness.finish(report(late[0], "sent"))
    harness.finish(report(late[1], "transient", **ACCOUNT))
    harness.finish(report(late[2], "config", **ACCOUNT))
    assert (harness.circuit(), harness.provider().circuit_until) == ("open", until)
    assert harness.noted() == [OPENED]


def test_an_open_circuit_is_noted_once_with_a_reason_without_addresses(
    harness: ProviderHarness, clock: Clock
) -> None:
    fail(harness, 5)
    (note,) = harness.notes()
    assert (note.event, note.at, note.worker) == (OPENED, clock.now, "worker-1")
    assert note.reason.startswith("down: no answer for ")
    assert "ana" not in note.reason
    assert harness.provider().circuit_reason == note.reason


def test_the_thresholds_of_a_circuit_belong_to_its_provider(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.alter("first", failure_threshold=2, failure_window="10 seconds", open_for="7 seconds")
    fail(harness, 1)
    harness.put()
    harness.call("sent")
    clock.forward(10 * SECOND)
    fail(harness, 1)
    assert harness.circuit() == "closed"
    clock.forward(9 * SECOND)
    fail(harness, 1)
    assert harness.provider().circuit_until == clock.now + 7 * SECOND


def test_begin_gives_back_what_an_open_circuit_must_not_get(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("plain", keys=False)
    harness.lead("plain")
    harness.put(2)
    one, other = harness.claim(limit=2)
    harness.finish(report(one, "config", **ACCOUNT))
    assert harness.start_attempts([other]) == set()
    assert harness.email(other.id).status == "pending"
    clock.forward(120 * SECOND)
    probe = harness.claim(limit=10)
    assert harness.start_attempts(probe) == {probe[0].id}
