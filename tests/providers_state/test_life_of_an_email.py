"""Whatever happens, nothing arrives twice and nothing is lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from providers_state.fleet import Fleet
from providers_state.harness import DAY, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import RESEND, Clock

STEPS = 60


def try_again(harness: ProviderHarness, queue_id: UUID) -> None:
    """Retry as a careful operator does: not a batch that is no longer whole, no suppressed one."""
    try:
        with harness.conn.transaction():
            harness.run("SELECT retry_email(%s)", queue_id)
    except psycopg.Error as error:
        if error.sqlstate not in {"MG024", "MG028"}:
            raise


def disturb_one(fleet: Fleet) -> None:
    """Do to an email what people and webhooks do."""
    harness, what = fleet.harness, fleet.random.randrange(4)
    emails: list[Any] = harness.rows("SELECT * FROM email_queue")
    email = fleet.random.choice(emails)
    protected = email.uncertain_since and fleet.clock.now < email.uncertain_since + 22 * HOUR
    if what == 0 and fleet.accepted[email.id]:
        harness.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", email.id)
    elif what == 1 and protected and email.status in {"failed", "pending"}:
        try_again(harness, email.id)
    elif what == 2 and email.status == "pending" and not email.uncertain_since:
        harness.run("SELECT cancel_email(%s)", email.id)
    elif what == 3:
        harness.run("DELETE FROM email_suppressions")
        harness.suppress(email.recipient_email)


def disturb_all(fleet: Fleet) -> None:
    """Do to the queue what operators and janitors do."""
    harness, random = fleet.harness, fleet.random
    what = random.randrange(4)
    if what == 0:
        harness.run("SELECT mailgres.reap(%s)", random.choice([3, 500]))
    elif what == 1:
        harness.lead(*random.sample(["first", "batches", "second"], random.randint(1, 3)))
    elif what == 2:
        harness.run("SELECT mailgres.reset_provider(%s)", random.choice(["first", "batches"]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("providers", [("batches",), ("batches", "second"), ("first", "batches")])
def test_nothing_arrives_twice_and_nothing_is_lost(
    harness: ProviderHarness, clock: Clock, providers: tuple[str, ...], seed: int
) -> None:
    fleet = Fleet(harness, clock, seed)
    harness.add("batches", batch=12)
    harness.add("second")
    harness.lead(*providers)
    harness.run("SELECT mailgres.limit_provider('batches', 60, NULL, NULL)")
    for step in range(STEPS):
        if step % 10 == 0 and step < STEPS / 2:
            harness.put(fleet.random.randint(1, 40), max_retries=5)
            harness.put(fleet.random.randint(1, 5), priority=1, tenant_id="other", max_retries=5)
            harness.put(3, expires_at=clock.now + 3 * MINUTE, max_retries=5)
        fleet.work()
        if fleet.random.random() < 0.3:
            fleet.random.choice([disturb_one, disturb_all])(fleet)
        clock.forward(fleet.random.choice([0, 1, 20, 61, 200]) * SECOND)

    harness.lead(*providers)
    harness.run("DELETE FROM email_suppressions")
    for _ in range(200):
        if not fleet.work(reactions={"accepted": 1}, may_die=False):
            clock.forward(30 * MINUTE)
        if not harness.statuses()["pending"] + harness.statuses()["sending"]:
            break
    settled(fleet)


def settled(fleet: Fleet) -> None:
    """Every email is settled as what became of it."""
    for email in fleet.harness.all():
        times = fleet.accepted[email.id]
        assert times <= 1, email
        assert email.status in {"sent", "failed", "cancelled"}, email
        if email.status == "sent":
            assert times == 1, email
        elif times:
            assert email.dead_reason in {"uncertain", "crashed"}, email
            assert email.uncertain_since, email


@pytest.mark.parametrize("seed", range(2))
def test_without_keys_only_what_was_ambiguous_may_arrive_twice(
    harness: ProviderHarness, clock: Clock, seed: int
) -> None:
    fleet = Fleet(harness, clock, seed)
    harness.add("plain", keys=False, batch=5)
    harness.lead("plain", "first")
    harness.put(60)
    resent = set(harness.put(20, template=RESEND))
    for _ in range(STEPS):
        fleet.work()
        clock.forward(fleet.random.choice([1, 61, 300]) * SECOND)
    clock.forward(DAY)
    while fleet.work(reactions={"accepted": 1}, may_die=False):
        clock.forward(HOUR)
    twice = {queue_id for queue_id, times in fleet.accepted.items() if times > 1}
    assert twice <= resent
