"""When the circuit of a provider opens, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.stage import ACCOUNT, HOUR, MINUTE, SECOND, Stage
from support.queue import Clock, report

OPENED = "CircuitBreakerOpened"


def fail(stage: Stage, times: int, **told: Any) -> None:
    """Let so many calls for different emails fail."""
    for _ in range(times):
        stage.put()
        stage.call("transient", **{**ACCOUNT, **told})
        stage.run("UPDATE email_queue SET status = 'cancelled' WHERE status = 'pending'")


def test_five_failed_calls_in_a_minute_open_it(stage: Stage, clock: Clock) -> None:
    fail(stage, 4)
    assert stage.circuit() == "closed"
    fail(stage, 1)
    opened = stage.provider()
    assert (opened.circuit, opened.circuit_since) == ("open", clock.now)
    assert opened.circuit_until == clock.now + 120 * SECOND


def test_also_with_answers_between_them(stage: Stage, clock: Clock) -> None:
    for _ in range(4):
        fail(stage, 1)
        stage.put()
        stage.call("sent")
        clock.forward(14 * SECOND)
    fail(stage, 1)
    assert stage.circuit() == "open"


def test_failures_further_apart_with_answers_between_them_do_not(
    stage: Stage, clock: Clock
) -> None:
    for _ in range(12):
        fail(stage, 1)
        stage.put()
        stage.call("sent")
        clock.forward(15 * SECOND)
    assert stage.circuit() == "closed"


def test_five_in_a_row_open_it_however_slowly(stage: Stage, clock: Clock) -> None:
    for _ in range(4):
        fail(stage, 1)
        clock.forward(HOUR)
    assert stage.circuit() == "closed"
    fail(stage, 1)
    assert stage.circuit() == "open"


@pytest.mark.parametrize("answer", ["sent", "permanent"])
def test_an_answer_begins_the_row_anew(stage: Stage, clock: Clock, answer: str) -> None:
    for times in (4, 4):
        for _ in range(times):
            fail(stage, 1)
            clock.forward(HOUR)
        stage.put()
        stage.call(answer)
    assert stage.circuit() == "closed"


@pytest.mark.parametrize(
    ("outcome", "told"),
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
    stage: Stage, clock: Clock, outcome: str, told: dict[str, Any]
) -> None:
    for _ in range(8):
        stage.put()
        stage.call(outcome, **told)
        clock.forward(20 * MINUTE)
        stage.run("DELETE FROM email_queue")
    assert (stage.circuit(), stage.provider().failures) == ("closed", 0)


def test_an_unknown_outcome_counts(stage: Stage, clock: Clock) -> None:
    for _ in range(5):
        stage.put()
        stage.call("ambiguous", **ACCOUNT)
        stage.run("DELETE FROM email_queue")
    assert stage.circuit() == "open"
    assert clock.now == stage.provider().circuit_since


def test_a_batch_that_fails_is_one_failure(stage: Stage, clock: Clock) -> None:
    stage.add("batches", batch=100)
    stage.lead("batches")
    for number in range(1, 6):
        stage.put(50)
        stage.call("transient", 50, batch_size=50, **ACCOUNT)
        provider = stage.provider("batches")
        assert (provider.failures, provider.circuit) == (number, "closed" if number < 5 else "open")
        stage.run("DELETE FROM email_queue")
        clock.forward(SECOND)


def test_a_fault_of_the_account_opens_it_at_once_and_touches_no_email(
    stage: Stage, clock: Clock
) -> None:
    (queue_id,) = stage.put(next_retry_at=clock.now - MINUTE)
    before = stage.email(queue_id)
    stage.call("config", code="invalid_api_key", account=True)
    after = stage.email(queue_id)
    assert stage.circuit() == "open"
    assert (after.status, after.next_retry_at, after.retries, after.parked_since) == (
        "pending", before.next_retry_at, 0, None,
    )  # fmt: skip


def test_open_means_not_claimed_unless_another_stands_in(stage: Stage, clock: Clock) -> None:
    stage.open_circuit()
    clock.forward(SECOND)
    assert stage.claim() == []
    stage.add("second")
    stage.lead("first", "second")
    assert [email.provider for email in stage.claim()] == ["second"]


def test_what_comes_in_late_does_not_close_it(stage: Stage, clock: Clock) -> None:
    stage.put(3)
    late = stage.claim(limit=3)
    stage.open_circuit()
    until = stage.provider().circuit_until
    clock.forward(SECOND)
    stage.finish(report(late[0], "sent"))
    stage.finish(report(late[1], "transient", **ACCOUNT))
    stage.finish(report(late[2], "config", **ACCOUNT))
    assert (stage.circuit(), stage.provider().circuit_until) == ("open", until)
    assert stage.noted() == [OPENED]


def test_it_is_noted_once_with_a_reason_that_names_nobody(stage: Stage, clock: Clock) -> None:
    fail(stage, 5)
    (note,) = stage.notes()
    assert (note.event, note.at, note.worker) == (OPENED, clock.now, "worker-1")
    assert note.reason.startswith("down: no answer for ")
    assert "ana" not in note.reason
    assert stage.provider().circuit_reason == note.reason


def test_a_provider_has_thresholds_of_its_own(stage: Stage, clock: Clock) -> None:
    stage.alter("first", failure_threshold=2, failure_window="10 seconds", open_for="7 seconds")
    fail(stage, 1)
    stage.put()
    stage.call("sent")
    clock.forward(10 * SECOND)
    fail(stage, 1)
    assert stage.circuit() == "closed"
    clock.forward(9 * SECOND)
    fail(stage, 1)
    assert stage.provider().circuit_until == clock.now + 7 * SECOND


def test_begin_gives_back_what_an_open_circuit_must_not_get(stage: Stage, clock: Clock) -> None:
    stage.add("plain", keys=False)
    stage.lead("plain")
    stage.put(2)
    one, other = stage.claim(limit=2)
    stage.finish(report(one, "config", **ACCOUNT))
    assert stage.start_attempts([other]) == set()
    assert stage.email(other.id).status == "pending"
    clock.forward(120 * SECOND)
    probe = stage.claim(limit=10)
    assert stage.start_attempts(probe) == {probe[0].id}
