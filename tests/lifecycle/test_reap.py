"""The emails of dead workers come back, or a person is asked; live workers are not robbed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.postgres import Connect
from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, is_leased

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def lose(queue: Queue, clock: Clock, *, started_attempt: bool = False) -> Any:
    """Claim the one email that is due, and let the worker die."""
    claimed = queue.claim_one()
    if started_attempt:
        queue.start_attempts([claimed])
    clock.forward(MINUTE)
    assert queue.reap() == 1
    return queue.email(claimed.id)


def test_no_email_is_reaped_before_its_lease_expires(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    held = queue.claim_one()
    clock.forward(MINUTE - SECOND)
    assert queue.reap() == 0
    assert queue.email(held.id) == held
    clock.forward(SECOND)
    assert queue.reap() == 1


def test_an_attempt_that_was_not_started_becomes_pending_again(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    email = lose(queue, clock)
    assert (email.status, email.ready, email.retries, email.lease_losses) == ("pending", True, 0, 1)
    assert email.uncertain_since is None
    assert not is_leased(email)
    assert queue.claim_one("second").id == queue_id


def test_a_started_attempt_without_keys_is_held(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(HOLD)
    began = clock.now
    email = lose(queue, clock, started_attempt=True)
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
    assert (email.dead_at, email.uncertain_since) == (clock.now, began)
    assert (email.error_class, email.retries) == ("ambiguous", 0)
    assert not is_leased(email)


def test_a_started_attempt_without_keys_is_sent_again(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue(RESEND)
    began = clock.now
    email = lose(queue, clock, started_attempt=True)
    assert (email.status, email.ready, email.uncertain_since) == ("pending", True, began)
    assert queue.claim_one().id == queue_id


def test_an_email_of_a_dead_worker_is_retried_with_its_key(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue(HOLD)
    began = clock.now
    email = lose(queue, clock)
    assert (email.status, email.ready, email.uncertain_since) == ("pending", True, began)
    again = queue.claim_one()
    assert (again.id, again.provider, again.generation) == (queue_id, WITH_KEYS, 0)
    assert again.first_attempt_at == began


@pytest.mark.parametrize(
    ("provider", "doubt"), [(WITH_KEYS, "; it may have arrived"), (WITHOUT_KEYS, "")]
)
def test_the_fifth_loss_is_a_crash(queue: Queue, clock: Clock, provider: str, doubt: str) -> None:
    queue.use_provider(provider)
    queue.enqueue()
    for losses in range(1, 5):
        email = lose(queue, clock)
        assert (email.status, email.lease_losses, email.retries) == ("pending", losses, 0)
    email = lose(queue, clock)
    assert (email.status, email.dead_reason, email.lease_losses) == ("failed", "crashed", 5)
    assert email.error_message == "5 workers died while they held it" + doubt


@pytest.mark.parametrize(("reported", "losses"), [({}, 0), ({"called": False}, 2)])
def test_a_call_that_was_made_forgets_the_losses(
    queue: Queue, clock: Clock, reported: dict[str, bool], losses: int
) -> None:
    queue.use_provider(WITH_KEYS)
    queue.enqueue()
    lose(queue, clock)
    lose(queue, clock)
    assert queue.attempt("transient", **reported).lease_losses == losses


def test_processors_without_a_token_never_crash(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue()
    for _ in range(10):
        assert [email.queue_id for email in queue.claim_rpc()] == [queue_id]
        clock.forward(15 * MINUTE - SECOND)
        assert queue.reap() == 0
        clock.forward(SECOND)
        assert queue.reap() == 1
        email = queue.email(queue_id)
        assert (email.status, email.lease_losses, email.retries) == ("pending", 0, 0)
        assert email.uncertain_since is None


def test_emails_are_reaped_in_bounded_steps_oldest_first(queue: Queue, clock: Clock) -> None:
    ids: list[UUID] = []
    for _ in range(3):
        ids.append(queue.enqueue())
        queue.claim_one()
        clock.forward(SECOND)
    clock.forward(MINUTE)
    assert queue.value("SELECT mailgres.reap(2)") == 2
    assert [queue.email(queue_id).status for queue_id in ids] == ["pending", "pending", "sending"]
    assert queue.value("SELECT mailgres.reap(2)") == 1
    assert queue.value("SELECT mailgres.reap(2)") == 0


def test_after_a_restart_nothing_is_reaped_for_one_lease(queue: Queue, clock: Clock) -> None:
    """The lease expired while the database was down: the worker that lives reports first."""
    queue.enqueue()
    held = queue.claim_one()
    queue.run("UPDATE mailgres.home SET server = gen_random_uuid()")  # as it was before the restart
    clock.forward(MINUTE + SECOND)
    assert held.lease_until < clock.now
    assert queue.reap() == 0
    assert queue.email(held.id) == held
    clock.forward(MINUTE - SECOND)
    assert queue.reap() == 0
    clock.forward(SECOND)
    assert queue.reap() == 1


def test_a_restart_that_was_seen_in_the_future_delays_no_reap(queue: Queue, clock: Clock) -> None:
    """The clock was a day ahead when the server restarted, and is set back."""
    queue.enqueue()
    queue.claim_one()
    queue.run("UPDATE mailgres.home SET server_since = mailgres.now() + interval '1 day'")
    clock.forward(MINUTE)
    assert queue.reap() == 0
    clock.forward(MINUTE)
    assert queue.reap() == 1


def test_two_reapers_neither_wait_nor_take_the_same_emails(
    committed: Queue, connect: Connect
) -> None:
    """The second neither waits for the first nor takes the same."""
    clock = Clock(committed.conn)
    ids = [committed.enqueue() for _ in range(4)]
    committed.claim()
    clock.forward(MINUTE)
    second = Queue(connect())
    with committed.conn.transaction():
        assert committed.value("SELECT mailgres.reap(3)") == 3
        assert second.reap() == 1
    assert second.reap() == 0
    for queue_id in ids:
        assert committed.email(queue_id).lease_losses == 1
        assert committed.events(queue_id) == ["lost"]
