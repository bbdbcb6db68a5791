"""An attempt with an unknown outcome: retried where a key protects, else a person decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def ambiguous(queue: Queue, provider: str, template: str = HOLD, **options: Any) -> UUID:
    """Enqueue an email whose first attempt may have arrived."""
    queue.use_provider(provider)
    queue_id = queue.enqueue(template, **options)
    queue.attempt("ambiguous", message="timed out")
    return queue_id


def test_an_uncertain_email_is_retried_with_the_same_key(queue: Queue, clock: Clock) -> None:
    queue_id = ambiguous(queue, WITH_KEYS)
    since = clock.now
    clock.forward(MINUTE)
    claimed = queue.claim_one()
    assert (claimed.id, claimed.generation, claimed.provider) == (queue_id, 0, WITH_KEYS)
    assert (claimed.first_attempt_at, claimed.uncertain_since) == (since, since)


def test_a_later_definite_fault_leaves_an_email_uncertain(queue: Queue, clock: Clock) -> None:
    """A later connection that is refused says nothing about the earlier attempt."""
    ambiguous(queue, WITH_KEYS, max_retries=1)
    since = clock.now
    clock.forward(MINUTE)
    email = queue.attempt("transient", message="refused")
    assert (email.status, email.dead_reason, email.uncertain_since) == (
        "failed",
        "uncertain",
        since,
    )


@pytest.mark.parametrize("outcome", ["rate", "quota", "config"])
def test_rate_limits_leave_an_email_uncertain(queue: Queue, clock: Clock, outcome: str) -> None:
    ambiguous(queue, WITH_KEYS)
    since = clock.now
    clock.forward(MINUTE)
    assert queue.attempt(outcome).uncertain_since == since


@pytest.mark.parametrize("outcome", ["sent", "permanent"])
def test_a_definite_answer_settles_an_uncertain_email(
    queue: Queue, clock: Clock, outcome: str
) -> None:
    ambiguous(queue, WITH_KEYS)
    clock.forward(MINUTE)
    assert queue.attempt(outcome).uncertain_since is None


@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_a_fault_before_the_call_is_no_answer(queue: Queue, clock: Clock, provider: str) -> None:
    queue_id = ambiguous(queue, provider, RESEND)
    since = clock.now
    clock.forward(MINUTE)
    email = queue.attempt("permanent", code="render", called=False)
    assert (email.dead_reason, email.uncertain_since) == ("uncertain", since)
    accept = provider == WITHOUT_KEYS
    queue.run("SELECT retry_email(%s, %s)", queue_id, accept)
    assert queue.claim_one().generation == int(accept)


def test_an_uncertain_email_stays_with_its_provider(queue: Queue, clock: Clock) -> None:
    """Another provider does not know the key."""
    queue_id = ambiguous(queue, WITH_KEYS)
    queue.use_provider(WITHOUT_KEYS)
    clock.forward(MINUTE)
    assert queue.claim_one().provider == WITH_KEYS
    queue.run("UPDATE email_queue SET status = 'pending'")
    queue.run("UPDATE mailgres.providers SET circuit = 'open' WHERE name = %s", WITH_KEYS)
    assert queue.claim() == []
    assert queue.email(queue_id).status == "pending"


@pytest.mark.parametrize("outcome", ["ambiguous", "transient", "quota", "config"])
def test_an_uncertain_email_dies_when_its_key_no_longer_protects(
    queue: Queue, clock: Clock, outcome: str
) -> None:
    queue_id = ambiguous(queue, WITH_KEYS, max_retries=99)
    clock.forward(23 * HOUR - MINUTE)
    email = queue.attempt(outcome, message="still nothing")
    assert email.id == queue_id
    assert (email.status, email.dead_reason) == ("failed", "uncertain")


def test_an_uncertain_email_is_retried_until_its_key_window_ends(
    queue: Queue, clock: Clock
) -> None:
    ambiguous(queue, WITH_KEYS, max_retries=99, retry_delay=MINUTE, max_retry_delay=MINUTE)
    clock.forward(23 * HOUR - MINUTE - timedelta(seconds=1))
    assert queue.attempt("ambiguous").status == "pending"


def test_an_uncertain_email_is_not_claimed_after_its_key_window(queue: Queue, clock: Clock) -> None:
    """After a day it is not retried with a key that has expired."""
    queue_id = ambiguous(queue, WITH_KEYS)
    clock.forward(23 * HOUR)
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
    assert "timed out" in email.error_message


def test_without_keys_an_uncertain_email_is_held(queue: Queue, clock: Clock) -> None:
    email = queue.email(ambiguous(queue, WITHOUT_KEYS, HOLD))
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
    assert (email.uncertain_since, email.retries) == (clock.now, 0)


def test_without_keys_an_uncertain_email_is_resent_if_the_template_says_so(
    queue: Queue, clock: Clock
) -> None:
    queue_id = ambiguous(queue, WITHOUT_KEYS, RESEND)
    email = queue.email(queue_id)
    assert (email.status, email.retries, email.uncertain_since) == ("pending", 1, clock.now)
    clock.forward(MINUTE)
    assert queue.attempt("sent").status == "sent"


def test_without_keys_resend_knows_no_window(queue: Queue, clock: Clock) -> None:
    ambiguous(queue, WITHOUT_KEYS, RESEND)
    clock.forward(48 * HOUR)
    assert queue.attempt("sent").status == "sent"


def test_without_a_template_a_person_decides(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue("my_own", subject="Hello", text="Hello")
    assert queue.attempt("ambiguous").dead_reason == "uncertain"


def test_an_email_is_uncertain_since_its_call_started(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue()
    claimed = queue.claim_one()
    began = clock.now
    queue.start_attempts([claimed])
    clock.forward(timedelta(seconds=30))
    queue.finish(report(claimed, "ambiguous"))
    assert queue.email(claimed.id).uncertain_since == began


@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_a_key_seen_with_other_content_is_never_repeated(queue: Queue, provider: str) -> None:
    queue.use_provider(provider)
    queue.enqueue(RESEND)
    email = queue.attempt("uncertain", code="invalid_idempotent_request")
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
    assert (email.error_class, email.generation) == ("ambiguous", 0)


def test_an_uncertain_email_that_expires_while_it_waits_is_dead_as_uncertain(
    queue: Queue, clock: Clock
) -> None:
    """The reason says that it may have arrived."""
    queue_id = ambiguous(queue, WITH_KEYS, expires_at=clock.now + HOUR)
    clock.forward(HOUR)
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "uncertain")


@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_a_suppressed_address_is_settled_in_the_end(
    queue: Queue, clock: Clock, provider: str
) -> None:
    """It is not retried, not called cancelled, and not deferred forever."""
    queue_id = ambiguous(queue, provider, RESEND)
    queue.suppress()
    for _ in range(30):
        clock.forward(HOUR)
        assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
