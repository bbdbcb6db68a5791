"""`email_dead_letters`: everything about a dead email, in the queue and in the archive."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from support.queue import RECIPIENT, Clock, Queue

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
USER = uuid4()


def entries(queue: Queue) -> list[Any]:
    return queue.rows("SELECT * FROM email_dead_letters ORDER BY id")


def die(queue: Queue, clock: Clock) -> tuple[UUID, list[Any]]:
    """Let an email fail as often as it may; its id and when it was tried."""
    found = queue.enqueue(
        payload={"name": "Ana"},
        tenant_id="acme",
        correlation_id="order-42",
        max_retries=2,
    )
    queue.run("UPDATE email_queue SET user_id = %s WHERE id = %s", USER, found)
    tries = []
    for _ in range(3):
        tries.append(clock.now)
        email = queue.attempt("transient", code="http_503", message="down", detail="raw text")
        clock.forward(max(email.next_retry_at - clock.now, MINUTE))
    return found, tries


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """An email whose providers may fail as often as they like."""
    queue.run("UPDATE mailgres.providers SET failure_threshold = 1000")
    return queue


def test_a_dead_letter_shows_everything_about_the_email(queue: Queue, clock: Clock) -> None:
    enqueued = clock.now
    found, tries = die(queue, clock)
    (entry,) = entries(queue)
    assert entry.id == found
    assert (entry.tenant_id, entry.template_type) == ("acme", "welcome_user")
    assert (entry.recipient_email, entry.payload) == (RECIPIENT, {"name": "Ana"})
    assert entry.user_id == USER
    assert entry.correlation_id == "order-42"
    assert (entry.attempts, entry.attempt_times) == (3, tries)
    assert (entry.dead_reason, entry.error_class) == ("exhausted", "transient")
    assert (entry.error_code, entry.error_message) == ("http_503", "down")
    assert entry.error_detail == "raw text"
    assert (entry.enqueued_at, entry.dead_at) == (enqueued, tries[-1])
    assert entry.expires_at == entry.dead_at + 7 * DAY
    assert entry.archived_at is None
    assert entry.email["priority"] == 5


def test_an_archived_dead_letter_looks_the_same(queue: Queue, clock: Clock) -> None:
    die(queue, clock)
    (before,) = entries(queue)
    clock.forward(7 * DAY)
    assert queue.value("SELECT mailgres.archive_dead_letters()") == 1
    (after,) = entries(queue)
    moved = {"archived_at": clock.now, "expires_at": clock.now + 90 * DAY}
    assert {key: value for key, value in after._asdict().items() if key != "email"} == {
        **{key: value for key, value in before._asdict().items() if key != "email"},
        **moved,
    }
    assert before.email.items() <= after.email.items()

    clock.forward(90 * DAY - MINUTE)
    queue.run("SELECT mailgres.purge_archive()")
    assert len(entries(queue)) == 1
    clock.forward(MINUTE)
    queue.run("SELECT mailgres.purge_archive()")
    assert entries(queue) == []


def test_a_dead_letter_without_an_attempt_is_shown(queue: Queue, clock: Clock) -> None:
    queue.enqueue(expires_at=clock.now + MINUTE, scheduled_for=clock.now)
    clock.forward(DAY)
    queue.run("SELECT mailgres.expire()")
    (entry,) = entries(queue)
    assert (entry.attempts, entry.attempt_times, entry.dead_reason) == (0, None, "expired")
    assert entry.error_message


def test_an_email_that_was_given_back_has_no_further_attempt(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    email = queue.claim_one()
    queue.run("SELECT mailgres.give_back(%s, %s)", email.lease_token, [email.id])
    clock.forward(MINUTE)
    queue.attempt("permanent", code="no_mailbox")
    (entry,) = entries(queue)
    assert (entry.attempts, entry.attempt_times) == (1, [clock.now])
    assert entry.error_message == "no_mailbox", "never empty"


def test_a_dead_letter_shows_attempts_of_a_processor_that_claims_nothing(
    queue: Queue, clock: Clock
) -> None:
    queue_id = queue.enqueue(max_retries=1)
    tries = []
    for _ in range(2):
        clock.forward(DAY)
        tries.append(clock.now)
        assert queue.value("SELECT mark_email_failed(%s, 'no answer')", queue_id) is True
    (entry,) = entries(queue)
    assert (entry.attempts, entry.attempt_times, entry.dead_reason) == (2, tries, "exhausted")
    clock.forward(7 * DAY)
    assert queue.value("SELECT mailgres.archive_dead_letters()") == 1
    (entry,) = entries(queue)
    assert (entry.attempts, entry.attempt_times) == (2, tries)


def test_only_dead_emails_are_dead_letters(queue: Queue) -> None:
    queue.enqueue()
    queue.attempt("sent")
    queue.enqueue()
    assert entries(queue) == []


def test_dead_letters_view_for_operators_only(queue: Queue, clock: Clock) -> None:
    die(queue, clock)
    queue.run("SET LOCAL ROLE mailgres_operator")
    assert len(entries(queue)) == 1
    for role in ("mailgres_analyst", "mailgres_worker", "mailgres_producer"):
        queue.run("RESET ROLE")
        queue.run(f"SET LOCAL ROLE {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), queue.conn.transaction():
            entries(queue)
