"""Waiting emails become ready when they are due, and end when their time is over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.queue import WITHOUT_KEYS, Clock, Queue

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def ready(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM email_queue WHERE ready")
    return count


def test_only_due_emails_are_promoted(queue: Queue, clock: Clock) -> None:
    for minutes in (1, 2, 3):
        queue.enqueue(scheduled_for=clock.now + minutes * MINUTE)
    assert (queue.value("SELECT mailgres.promote()"), ready(queue)) == (0, 0)
    clock.forward(2 * MINUTE)
    assert (queue.value("SELECT mailgres.promote()"), ready(queue)) == (2, 2)
    assert queue.value("SELECT mailgres.promote()") == 0


def test_promotion_works_in_bounded_steps_soonest_first(queue: Queue, clock: Clock) -> None:
    ids = [queue.enqueue(scheduled_for=clock.now + minutes * MINUTE) for minutes in (3, 1, 2)]
    clock.forward(HOUR)
    assert queue.value("SELECT mailgres.promote(2)") == 2
    assert [queue.email(queue_id).ready for queue_id in ids] == [False, True, True]
    assert (queue.value("SELECT mailgres.promote(2)"), ready(queue)) == (1, 3)


def test_a_claim_promotes_due_emails_first(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + MINUTE)
    clock.forward(MINUTE)
    assert queue.claim_one().id == queue_id


def test_promotion_marks_expired_emails_as_dead(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + MINUTE, expires_at=clock.now + HOUR)
    clock.forward(HOUR)
    queue.run("SELECT mailgres.promote()")
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.dead_at) == ("failed", "expired", clock.now)


def test_promotion_is_not_logged(queue: Queue, clock: Clock) -> None:
    """It changes no status."""
    queue_id = queue.enqueue(scheduled_for=clock.now + MINUTE)
    clock.forward(MINUTE)
    queue.run("SELECT mailgres.promote()")
    assert queue.events(queue_id) == []


@pytest.mark.parametrize("scheduled", [timedelta(0), 2 * HOUR])
def test_waiting_emails_die_when_they_expire(
    queue: Queue, clock: Clock, scheduled: timedelta
) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + scheduled, expires_at=clock.now + 3 * HOUR)
    clock.forward(3 * HOUR - timedelta(seconds=1))
    assert queue.value("SELECT mailgres.expire()") == 0
    clock.forward(timedelta(seconds=1))
    assert queue.value("SELECT mailgres.expire()") == 1
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.dead_at) == ("failed", "expired", clock.now)
    assert email.error_message.startswith("not sent before it expired at ")
    assert queue.events(queue_id) == ["dead"]


def test_expire_keeps_the_last_fault(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + HOUR)
    queue.attempt("transient", message="mailbox busy")
    clock.forward(HOUR)
    queue.run("SELECT mailgres.expire()")
    assert queue.email(queue_id).error_message.endswith("; last fault: mailbox busy")


def test_expire_works_in_bounded_steps(queue: Queue, clock: Clock) -> None:
    for _ in range(3):
        queue.enqueue(expires_at=clock.now + HOUR)
    clock.forward(HOUR)
    assert [queue.value("SELECT mailgres.expire(2)") for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize("started", [False, True])
def test_an_email_in_flight_does_not_expire(
    queue: Queue,
    clock: Clock,
    started: bool,  # noqa: FBT001
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(expires_at=clock.now + MINUTE)
    (claimed,) = queue.claim(lease="1 hour")
    if started:
        queue.start_attempts([claimed])
    clock.forward(MINUTE)
    assert queue.value("SELECT mailgres.expire()") == 0
    assert queue.email(claimed.id).status == "sending"


def test_the_expiry_comes_from_email_template_or_settings(queue: Queue, clock: Clock) -> None:
    """The email decides, then its template, then the settings; counted from when it may be sent."""
    start = clock.now + HOUR
    assert queue.email(queue.enqueue()).expires_at is None
    queue.run("UPDATE mailgres.settings SET expires_after = '24 hours'")
    assert queue.email(queue.enqueue()).expires_at == clock.now + 24 * HOUR
    assert queue.email(queue.enqueue(scheduled_for=start)).expires_at == start + 24 * HOUR
    queue.run("UPDATE email_templates SET expires_after = '2 hours'")
    assert queue.email(queue.enqueue()).expires_at == clock.now + 2 * HOUR
    assert queue.email(queue.enqueue(expires_at=start)).expires_at == start


def test_an_expired_email_is_never_claimed(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + HOUR)
    clock.forward(HOUR)
    assert queue.claim() == []
    assert queue.email(queue_id).dead_reason == "expired"
