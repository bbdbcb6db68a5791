"""A reset of a provider releases what waits for it, and changes nothing else about it."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.harness import ACCOUNT, DAY, HOUR, MINUTE, SECOND, ProviderHarness
from support.postgres import Connect
from support.queue import RESEND, Clock

RESET = "SELECT mailgres.reset_provider(%s)"
KEPT = (
    "id, status, provider, batch_id, batch_size, generation, uncertain_since, parked_since, retries"
)
"""What makes a repeated call the same call."""


def kept(harness: ProviderHarness) -> list[Any]:
    return harness.rows(f"SELECT {KEPT} FROM email_queue ORDER BY id")


def waits(harness: ProviderHarness, clock: Clock) -> int:
    """Return how many emails cannot be claimed before some time to come."""
    query = "SELECT count(*) FROM email_queue WHERE status = 'pending' AND next_retry_at > %s"
    found: int = harness.value(query, clock.now)
    return found


def test_a_reset_releases_an_uncertain_email(harness: ProviderHarness, clock: Clock) -> None:
    harness.put()
    harness.call("ambiguous", **ACCOUNT)
    before = kept(harness)
    assert (before[0].uncertain_since, waits(harness, clock)) == (clock.now, 1)
    harness.run(RESET, "first")
    assert (kept(harness), waits(harness, clock)) == (before, 0)
    (again,) = harness.claim()
    assert (again.id, again.generation) == (before[0].id, 0)


def test_a_reset_releases_an_uncertain_email_that_was_put_off_behind_an_open_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    (queue_id,) = harness.put()
    harness.call("ambiguous", **ACCOUNT)
    harness.open_circuit()
    harness.add("second")
    harness.lead("first", "second")
    clock.forward(MINUTE)
    assert queue_id not in {email.id for email in harness.claim()}
    assert harness.email(queue_id).next_retry_at > clock.now
    harness.run(RESET, "first")
    assert queue_id in {email.id for email in harness.claim()}


def test_a_reset_releases_an_uncertain_batch_whole_and_under_its_key(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("batches", batch=10)
    harness.lead("batches")
    harness.put(10)
    harness.call("ambiguous", 10, batch_size=10, **ACCOUNT)
    before = kept(harness)
    assert waits(harness, clock) == 10
    harness.run(RESET, "batches")
    assert (kept(harness), waits(harness, clock)) == (before, 0)
    again = harness.claim(limit=10)
    assert {email.batch_id for email in again} == {before[0].batch_id}
    assert len(again) == 10


def test_a_reset_skips_a_batch_with_a_locked_row(
    committed: ProviderHarness, connect: Connect
) -> None:
    clock = Clock(committed.conn)
    committed.add("batches", batch=10)
    committed.lead("batches")
    committed.put(10)
    committed.call("ambiguous", 10, batch_size=10, **ACCOUNT)
    before = committed.rows("SELECT id, next_retry_at FROM email_queue ORDER BY id")
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (before[3].id,))
    committed.run("SET lock_timeout = '5s'")
    committed.run(RESET, "batches")
    assert committed.rows("SELECT id, next_retry_at FROM email_queue ORDER BY id") == before
    holder.rollback()
    committed.run(RESET, "batches")
    assert waits(committed, clock) == 0


@pytest.mark.parametrize("outcome", ["rate", "quota"])
def test_a_reset_releases_what_waits_for_a_limit_though_the_provider_no_longer_does(
    harness: ProviderHarness, clock: Clock, outcome: str
) -> None:
    harness.put()
    harness.call(outcome, retry_after=HOUR)
    harness.alter("first", limited_until=None, limited_by=None)
    harness.run(RESET, "first")
    assert waits(harness, clock) == 0


def test_a_reset_releases_what_waits_for_its_sender_and_counts_on_from_when_it_began(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put()
    harness.call("config", code="unverified")
    since = clock.now
    clock.forward(SECOND)
    harness.run(RESET, "first")
    (email,) = harness.all()
    assert (email.next_retry_at, email.parked_since) == (clock.now, since)


def test_a_reset_releases_the_email_that_probed_the_provider(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.open_circuit()
    clock.forward(2 * MINUTE)
    (probe,) = harness.call("transient", **ACCOUNT)
    assert harness.email(probe.id).next_retry_at > clock.now + 2 * MINUTE
    harness.run(RESET, "first")
    assert harness.email(probe.id).next_retry_at == clock.now


def test_a_reset_leaves_emails_with_other_waits_unchanged(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("second")
    harness.put(template=RESEND)
    harness.call("transient", code="greylisted")  # by its own policy
    harness.enqueue(scheduled_for=clock.now + DAY)  # for its time
    harness.lead("second")
    harness.put()
    harness.call("ambiguous", **ACCOUNT)  # for another provider
    before = harness.all()
    harness.run(RESET, "first")
    assert harness.all() == before
