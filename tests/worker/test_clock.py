"""The clock of the database moves under a worker: nothing is lost, nothing is sent twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mailgres.testing import travel
from mailgres.worker.store import Store
from support.queue import RESEND, Clock
from worker.harness import WorkerHarness, until

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SLOWLY = {"delay": 0.1}


def test_a_worker_sleeps_by_the_clock_of_the_database(harness: WorkerHarness) -> None:
    """By the clock by which the email is due, wherever that stands."""
    store = Store(harness.url, worker="here")
    clock = Clock(harness.conn)
    due = clock.now + 2 * HOUR
    harness.enqueue(scheduled_for=due)
    try:
        with store.connect() as connection:
            for early in (HOUR, 10 * MINUTE, -10 * MINUTE):
                clock.set(due - early)
                assert store.mark_asleep(connection, MINUTE) == early
    finally:
        store.close()


@pytest.mark.parametrize("janitors", [False, True])
def test_a_worker_survives_a_clock_that_jumps_forward_and_back(
    harness: WorkerHarness, *, janitors: bool
) -> None:
    """In the middle of work: leases seem to have ended long ago, or to last for an hour more.

    A call whose lease seems to have ended is made again, with the same key.
    """
    harness.use_double()
    emails = harness.fill(60)
    later = harness.enqueue(scheduled_for=harness.value("SELECT mailgres.now()") + 30 * MINUTE)
    with harness.worker(lease=30.0, janitors=janitors, double=SLOWLY) as worker:
        until(lambda: harness.ledger.accepted().total() >= 10, "it works")
        travel(harness.conn, HOUR)
        until(lambda: harness.ledger.accepted().total() >= 20, "it goes on")
        until(lambda: str(later) in harness.ledger.accepted(), "what is due by now is sent")
        emails |= harness.fill(20)
        travel(harness.conn, -HOUR)
        emails |= harness.fill(20)
        harness.until_settled()
        assert worker.stop()["dead"] == 0
    assert harness.ledger.accepted() == dict.fromkeys(emails | {str(later)}, 1)
    assert harness.statuses() == {"sent": 101}
    assert harness.value("SELECT max(retries) FROM email_queue") == 0


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_clock_that_jumps_sends_nothing_twice_without_keys(
    harness: WorkerHarness, by: timedelta
) -> None:
    """Nothing is sent twice between the calls either."""
    harness.use_double(idempotent=False)
    emails = harness.fill(5, RESEND)
    with harness.worker(double={"idempotent": False}) as worker:
        harness.until_settled()
        travel(harness.conn, by)
        emails |= harness.fill(5, RESEND)
        harness.until_settled()
        travel(harness.conn, -by)
        emails |= harness.fill(5, RESEND)
        harness.until_settled()
        assert worker.stop()["sent"] == 15
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
