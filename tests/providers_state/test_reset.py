"""A reset of a provider releases what waits for it, and changes nothing else about it."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.stage import ACCOUNT, DAY, HOUR, MINUTE, SECOND, Stage
from support.postgres import Connect
from support.queue import RESEND, Clock

RESET = "SELECT mailgres.reset_provider(%s)"
KEPT = (
    "id, status, provider, batch_id, batch_size, generation, uncertain_since, parked_since, retries"
)
"""What makes a repeated call the same call."""


def kept(stage: Stage) -> list[Any]:
    return stage.rows(f"SELECT {KEPT} FROM email_queue ORDER BY id")


def waits(stage: Stage, clock: Clock) -> int:
    """How many emails cannot be claimed before some time to come."""
    query = "SELECT count(*) FROM email_queue WHERE status = 'pending' AND next_retry_at > %s"
    found: int = stage.value(query, clock.now)
    return found


def test_a_reset_releases_an_uncertain_email(stage: Stage, clock: Clock) -> None:
    stage.put()
    stage.call("ambiguous", **ACCOUNT)
    before = kept(stage)
    assert (before[0].uncertain_since, waits(stage, clock)) == (clock.now, 1)
    stage.run(RESET, "first")
    assert (kept(stage), waits(stage, clock)) == (before, 0)
    (again,) = stage.claim()
    assert (again.id, again.generation) == (before[0].id, 0)


def test_a_reset_releases_an_uncertain_email_that_was_put_off_behind_an_open_circuit(
    stage: Stage, clock: Clock
) -> None:
    (queue_id,) = stage.put()
    stage.call("ambiguous", **ACCOUNT)
    stage.open_circuit()
    stage.add("second")
    stage.lead("first", "second")
    clock.forward(MINUTE)
    assert queue_id not in {email.id for email in stage.claim()}
    assert stage.email(queue_id).next_retry_at > clock.now
    stage.run(RESET, "first")
    assert queue_id in {email.id for email in stage.claim()}


def test_a_reset_releases_an_uncertain_batch_whole_and_under_its_key(
    stage: Stage, clock: Clock
) -> None:
    stage.add("batches", batch=10)
    stage.lead("batches")
    stage.put(10)
    stage.call("ambiguous", 10, batch_size=10, **ACCOUNT)
    before = kept(stage)
    assert waits(stage, clock) == 10
    stage.run(RESET, "batches")
    assert (kept(stage), waits(stage, clock)) == (before, 0)
    again = stage.claim(limit=10)
    assert {email.batch_id for email in again} == {before[0].batch_id}
    assert len(again) == 10


def test_a_reset_leaves_a_batch_alone_of_which_somebody_else_holds_an_email(
    committed: Stage, connect: Connect
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
    stage: Stage, clock: Clock, outcome: str
) -> None:
    stage.put()
    stage.call(outcome, retry_after=HOUR)
    stage.alter("first", waits_until=None, waits_for=None)
    stage.run(RESET, "first")
    assert waits(stage, clock) == 0


def test_a_reset_releases_what_waits_for_its_sender_and_counts_on_from_when_it_began(
    stage: Stage, clock: Clock
) -> None:
    stage.put()
    stage.call("config", code="unverified")
    since = clock.now
    clock.forward(SECOND)
    stage.run(RESET, "first")
    (email,) = stage.all()
    assert (email.next_retry_at, email.parked_since) == (clock.now, since)


def test_a_reset_releases_the_email_that_tried_whether_the_provider_is_back(
    stage: Stage, clock: Clock
) -> None:
    stage.open_circuit()
    clock.forward(2 * MINUTE)
    (probe,) = stage.call("transient", **ACCOUNT)
    assert stage.email(probe.id).next_retry_at > clock.now + 2 * MINUTE
    stage.run(RESET, "first")
    assert stage.email(probe.id).next_retry_at == clock.now


def test_a_reset_leaves_alone_what_waits_for_anything_else(stage: Stage, clock: Clock) -> None:
    stage.add("second")
    stage.put(template=RESEND)
    stage.call("transient", code="greylisted")  # by its own policy
    stage.enqueue(scheduled_for=clock.now + DAY)  # for its time
    stage.lead("second")
    stage.put()
    stage.call("ambiguous", **ACCOUNT)  # for another provider
    before = stage.all()
    stage.run(RESET, "first")
    assert stage.all() == before
