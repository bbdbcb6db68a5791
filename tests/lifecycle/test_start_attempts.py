"""Just before the call: is it still wanted? And how a worker returns or keeps what it holds."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from support.postgres import Connect
from support.queue import WITHOUT_KEYS, Clock, Queue, is_leased, report

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _without_keys(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)


def test_start_attempts_records_the_start_of_each_attempt(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    claimed = queue.claim_one()
    assert claimed.attempt_started_at is None
    clock.forward(timedelta(seconds=5))
    assert queue.start_attempts([claimed]) == {claimed.id}
    assert queue.email(claimed.id).attempt_started_at == clock.now


def test_providers_with_keys_need_no_start_of_attempts(queue: Queue, clock: Clock) -> None:
    queue.use_provider("resend")
    queue.enqueue()
    assert queue.claim_one().attempt_started_at == clock.now


PAUSES = {
    "tenant": "INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('default', now())",
    "provider until later": (
        "UPDATE mailgres.providers SET paused_until = mailgres.now() + interval '1 hour'"
    ),
    "circuit": "UPDATE mailgres.providers SET circuit = 'open'",
    "probing": "UPDATE mailgres.providers SET circuit = 'half_open'",
    "provider switched off": "UPDATE mailgres.providers SET enabled = false",
}


@pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES.keys())
def test_start_attempts_gives_back_paused_emails(queue: Queue, pause: str) -> None:
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    queue.run(pause)
    assert queue.start_attempts([claimed]) == set()
    email = queue.email(queue_id)
    assert (email.status, email.ready, email.retries, email.lease_losses) == ("pending", True, 0, 0)
    assert not is_leased(email)
    assert queue.claim() == []


def test_an_attempt_starts_after_the_pause_of_its_provider_is_over(queue: Queue) -> None:
    queue.enqueue()
    claimed = queue.claim_one()
    queue.run("UPDATE mailgres.providers SET paused_until = mailgres.now()")
    assert queue.start_attempts([claimed]) == {claimed.id}


@pytest.mark.parametrize("tenant", ["*", "default"])
def test_a_suppressed_address_is_cancelled(queue: Queue, tenant: str) -> None:
    queue_id = queue.enqueue(recipient_email="Ana@Example.com")
    claimed = queue.claim_one()
    queue.suppress("ana@example.com", tenant)
    assert queue.start_attempts([claimed]) == set()
    email = queue.email(queue_id)
    assert (email.status, email.error_message) == ("cancelled", "the address is suppressed: manual")
    assert not is_leased(email)


def test_the_suppression_of_another_tenant_does_not_matter(queue: Queue) -> None:
    queue.enqueue()
    claimed = queue.claim_one()
    queue.suppress(tenant="another")
    assert queue.start_attempts([claimed]) == {claimed.id}


def test_start_attempts_marks_expired_emails_as_dead(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + timedelta(seconds=10))
    claimed = queue.claim_one()
    clock.forward(timedelta(seconds=10))
    assert queue.start_attempts([claimed]) == set()
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "expired")
    assert str(email.expires_at.year) in email.error_message
    assert not is_leased(email)


def test_a_cancelled_email_does_not_begin(queue: Queue) -> None:
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    assert queue.value("SELECT cancel_email(%s)", queue_id)
    assert queue.start_attempts([claimed]) == set()
    assert queue.email(queue_id).status == "cancelled"


def test_a_lost_lease_does_not_begin(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    lost = queue.claim_one("slow")
    clock.forward(2 * MINUTE)
    queue.reap()
    held = queue.claim_one("second")
    assert queue.start_attempts([lost]) == set()
    assert queue.email(held.id) == held


def test_an_email_that_must_not_be_sent_does_not_stop_the_others(queue: Queue) -> None:
    """An email that must not be sent does not delay the others."""
    for number in range(4):
        queue.enqueue(recipient_email=f"user{number}@example.com")
    claimed = queue.claim()
    queue.suppress("user2@example.com")
    started = queue.start_attempts(claimed)
    kept = {email.id for email in claimed if email.recipient_email != "user2@example.com"}
    assert started == kept
    done = queue.finish(*(report(email, "sent") for email in claimed))
    assert {row.id for row in done if row.refused is None} == kept


def test_give_back_makes_emails_pending_again(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue()
    due = queue.email(queue_id).next_retry_at
    claimed = queue.claim_one()
    queue.start_attempts([claimed])
    clock.forward(timedelta(seconds=10))
    give_back = "SELECT mailgres.give_back(%s, %s)"
    assert queue.value(give_back, claimed.lease_token, [queue_id]) == queue_id
    email = queue.email(queue_id)
    assert (email.status, email.ready, email.retries, email.lease_losses) == ("pending", True, 0, 0)
    assert (email.next_retry_at, email.uncertain_since) == (due, None)
    assert not is_leased(email)
    assert queue.claim_one("second").id == queue_id


def test_give_back_needs_the_token_of_the_lease(queue: Queue) -> None:
    queue.enqueue()
    held = queue.claim_one()
    assert queue.rows("SELECT mailgres.give_back(%s, %s)", uuid4(), [held.id]) == []
    assert queue.email(held.id) == held


EXTEND = "SELECT mailgres.extend(%s, %s, %s)"


def test_extend_prolongs_the_lease(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    held = queue.claim_one()
    clock.forward(timedelta(seconds=59))
    assert queue.value(EXTEND, held.lease_token, [held.id], MINUTE) == held.id
    assert queue.email(held.id).lease_until == clock.now + MINUTE
    clock.forward(timedelta(seconds=59))
    assert queue.reap() == 0
    (done,) = queue.finish(report(held, "sent"))
    assert done.refused is None


def test_extend_never_shortens_a_lease(queue: Queue) -> None:
    queue.enqueue()
    (held,) = queue.claim(lease="30 minutes")
    queue.run(EXTEND, held.lease_token, [held.id], MINUTE)
    assert queue.email(held.id).lease_until == held.lease_until


def test_extend_needs_the_token_of_the_lease(queue: Queue) -> None:
    queue.enqueue()
    held = queue.claim_one()
    assert queue.rows(EXTEND, uuid4(), [held.id], 10 * MINUTE) == []
    assert queue.email(held.id) == held


def test_extend_skips_locked_rows(committed: Queue, connect: Connect) -> None:
    """A session that waits while it holds other rows can be part of a deadlock."""
    for _ in range(3):
        committed.enqueue()
    held = committed.claim()
    finishing = held[1]
    committed.run("SET lock_timeout = '1s'")
    with connect() as other, other.transaction():
        other.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (finishing.id,))
        ids = [one.id for one in held]
        found = committed.rows(EXTEND, held[0].lease_token, ids, 10 * MINUTE)
        assert {one.extend for one in found} == set(ids)
    longer = {one.id for one in held if committed.email(one.id).lease_until > one.lease_until}
    assert longer == set(ids) - {finishing.id}


BEGIN = "SELECT mailgres.start_attempts(%s, %s, true, %s)"
EXTEND = "SELECT mailgres.extend(%s, %s, %s)"


@pytest.mark.parametrize(
    ("held", "lease", "then"),
    [
        (timedelta(minutes=10), MINUTE, MINUTE),
        (timedelta(minutes=10), None, timedelta(minutes=11)),
        (timedelta(days=1), None, timedelta(hours=1)),
    ],
)
def test_a_lease_does_not_grow(
    queue: Queue, clock: Clock, held: timedelta, lease: timedelta | None, then: timedelta
) -> None:
    """A worker that waited long before its call gets no longer lease for it."""
    queue.enqueue()
    claimed = queue.claim_one()
    queue.run(EXTEND, claimed.lease_token, [claimed.id], held + MINUTE)
    clock.forward(held)
    queue.run(BEGIN, claimed.lease_token, [claimed.id], lease)
    assert queue.email(claimed.id).lease_until == clock.now + then
