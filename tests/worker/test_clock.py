"""The clock of the database moves under a worker: nothing is lost, nothing is sent twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mailgres.store import Store
from mailgres.testing import travel
from support.queue import RESEND, Clock
from worker.bench import Bench, until

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SLOWLY = {"delay": 0.1}


def test_how_long_to_sleep(bench: Bench) -> None:
    """By the clock by which the email is due, wherever that stands."""
    store = Store(bench.url, worker="here")
    clock = Clock(bench.conn)
    due = clock.now + 2 * HOUR
    bench.enqueue(scheduled_for=due)
    try:
        with store.connect() as connection:
            for early in (HOUR, 10 * MINUTE, -10 * MINUTE):
                clock.set(due - early)
                assert store.sleep(connection, MINUTE) == early
    finally:
        store.close()


@pytest.mark.parametrize("janitors", [False, True])
def test_forward_and_back(bench: Bench, *, janitors: bool) -> None:
    """In the middle of work: leases seem to have ended long ago, or to last for an hour more.

    A call whose lease seems to have ended is made again, with the same key.
    """
    bench.use_double()
    emails = bench.fill(60)
    later = bench.enqueue(scheduled_for=bench.value("SELECT mailgres.now()") + 30 * MINUTE)
    with bench.worker(lease=30.0, janitors=janitors, double=SLOWLY) as worker:
        until(lambda: bench.ledger.accepted().total() >= 10, "it works")
        travel(bench.conn, HOUR)
        until(lambda: bench.ledger.accepted().total() >= 20, "it goes on")
        until(lambda: str(later) in bench.ledger.accepted(), "what is due by now is sent")
        emails |= bench.fill(20)
        travel(bench.conn, -HOUR)
        emails |= bench.fill(20)
        bench.until_settled()
        assert worker.stop()["dead"] == 0
    assert bench.ledger.accepted() == dict.fromkeys(emails | {str(later)}, 1)
    assert bench.statuses() == {"sent": 101}
    assert bench.value("SELECT max(retries) FROM email_queue") == 0


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_without_keys(bench: Bench, by: timedelta) -> None:
    """Between the calls nothing is sent twice either, though nobody would notice."""
    bench.use_double(idempotent=False)
    emails = bench.fill(5, RESEND)
    with bench.worker(double={"idempotent": False}) as worker:
        bench.until_settled()
        travel(bench.conn, by)
        emails |= bench.fill(5, RESEND)
        bench.until_settled()
        travel(bench.conn, -by)
        emails |= bench.fill(5, RESEND)
        bench.until_settled()
        assert worker.stop()["sent"] == 15
    assert bench.ledger.accepted() == dict.fromkeys(emails, 1)
