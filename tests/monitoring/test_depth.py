"""The depth: counted now and then, believed for a minute, and counted on the spot if nobody did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.postgres import Connect
from support.queue import Clock, Queue, report

SECOND = timedelta(seconds=1)


def pending(queue: Queue) -> Any:
    return queue.row("SELECT * FROM email_queue_state WHERE status = 'pending'")


def measure(queue: Queue, every: str = "8 seconds") -> int:
    count: int = queue.value("SELECT mailgres.measure_depth(%s)", every)
    return count


def test_views_show_the_depth_snapshot_and_its_time(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    assert measure(queue) == 1
    counted_at = clock.now
    queue.enqueue()
    clock.forward(15 * SECOND)
    assert (pending(queue).emails, pending(queue).as_of) == (1, counted_at)
    assert measure(queue) == 1
    assert (pending(queue).emails, pending(queue).as_of) == (2, clock.now)


def test_an_empty_queue_has_been_counted_too(queue: Queue, clock: Clock) -> None:
    measure(queue)
    counted_at = clock.now
    clock.forward(5 * SECOND)
    assert (pending(queue).emails, pending(queue).as_of) == (0, counted_at)


def test_views_count_themselves_when_the_snapshot_is_old(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    measure(queue)
    queue.enqueue()
    clock.forward(61 * SECOND)
    assert (pending(queue).emails, pending(queue).as_of) == (2, clock.now)
    for view in ("email_pending_by_template", "email_failure_rate_by_template", "email_eta"):
        assert queue.rows(f"SELECT * FROM {view}"), view


def test_depth_is_not_counted_more_often_than_needed(queue: Queue, clock: Clock) -> None:
    assert measure(queue) == 1
    clock.forward(7 * SECOND)
    assert measure(queue) == 0
    clock.forward(SECOND)
    assert measure(queue) == 1


def test_what_takes_too_long_to_count_is_shown_as_it_was(
    committed: Queue, connect: Connect
) -> None:
    """And is not tried again at once: else a long queue would be counted all the time."""
    queue, clock = committed, Clock(committed.conn)
    queue.enqueue()
    measure(queue)
    counted_at = clock.now
    clock.forward(30 * SECOND)
    with connect(autocommit=False) as other:
        other.execute("LOCK TABLE email_queue IN ACCESS EXCLUSIVE MODE")
        queue.run("SET statement_timeout = '200ms'")
        assert measure(queue) == 0
        queue.run("RESET statement_timeout")
    took = queue.value("SELECT took FROM mailgres.depth")
    assert timedelta(milliseconds=200) <= took
    queue.enqueue()
    clock.forward(20 * took)
    assert (pending(queue).emails, pending(queue).as_of) == (1, counted_at)
    clock.forward(SECOND)
    assert pending(queue).emails == 2


def test_counting_takes_a_tenth_of_the_time_at_most(queue: Queue, clock: Clock) -> None:
    """A count that took long is used for longer, so that no other session counts meanwhile."""
    measure(queue)
    queue.run("UPDATE mailgres.depth SET took = '4 seconds'")
    clock.forward(39 * SECOND)
    assert measure(queue) == 0
    clock.forward(SECOND)
    assert measure(queue) == 1


def test_a_snapshot_from_the_future_is_not_used(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    measure(queue)
    clock.forward(-3600 * SECOND)
    assert pending(queue).as_of == clock.now
    assert measure(queue) == 1


def test_tenants_without_emails_leave_the_depth_snapshot(queue: Queue, clock: Clock) -> None:
    queue.enqueue(tenant_id="a")
    queue.enqueue(tenant_id="b")
    measure(queue)
    assert queue.value("SELECT count(*) FROM mailgres.depth_by_tenant") == 2
    queue.finish(*(report(email, "sent") for email in queue.claim()))
    clock.forward(10 * SECOND)
    measure(queue)
    assert queue.value("SELECT count(*) FROM mailgres.depth_by_tenant") == 0
    assert queue.value("SELECT count(*) FROM mailgres.depth_by_template") == 0


def test_two_counts_at_once_do_not_wait_for_each_other(committed: Queue, connect: Connect) -> None:
    """One counts; the other does not wait for it."""
    committed.enqueue()
    second = Queue(connect())
    with committed.conn.transaction():
        assert measure(committed) == 1
        assert measure(second) == 0
    assert pending(second).emails == 1


@pytest.mark.parametrize("status", ["pending", "sending"])
def test_the_depth_snapshot_has_the_oldest_times_for_alerts(
    queue: Queue, clock: Clock, status: str
) -> None:
    """Since when emails are due, or held by a worker; emails that are parked."""
    queue.enqueue()
    since = clock.now
    if status == "sending":
        queue.claim()
    clock.forward(300 * SECOND)
    found = queue.row("SELECT * FROM mailgres.current_depth_by_template")
    assert found.status == status
    assert (found.oldest_lease, found.oldest_due) == (
        (since, None) if status == "sending" else (None, since)
    )


def test_parked_emails_are_counted_apart(queue: Queue) -> None:
    queue.enqueue()
    queue.attempt("config")
    found = queue.row("SELECT * FROM email_pending_by_template")
    assert (found.pending_count, found.due_count, found.parked_count) == (1, 0, 1)


def measure_too_long(queue: Queue, connect: Connect) -> timedelta:
    """Count while the table is not to be had; returns how long that took."""
    with connect(autocommit=False) as other:
        other.execute("LOCK TABLE email_queue IN ACCESS EXCLUSIVE MODE")
        queue.run("SET statement_timeout = '200ms'")
        assert measure(queue) == 0
        queue.run("RESET statement_timeout")
    took: timedelta = queue.value("SELECT took FROM mailgres.depth")
    return took


def test_a_first_count_that_takes_too_long_is_remembered(
    committed: Queue, connect: Connect
) -> None:
    """It is not retried at once, and the views show no numbers that were never counted."""
    queue, clock = committed, Clock(committed.conn)
    queue.enqueue()
    took = measure_too_long(queue, connect)
    clock.forward(took * 9)
    assert measure(queue, "1 microsecond") == 0
    assert (pending(queue).emails, pending(queue).as_of) == (1, clock.now)
    clock.forward(8 * SECOND)
    took = measure_too_long(queue, connect)
    assert (pending(queue).emails, pending(queue).as_of) == (1, clock.now)
    clock.forward(10 * took + 8 * SECOND)
    assert measure(queue) == 1


def test_a_depth_count_after_one_that_took_too_long_stops_at_10_000(
    committed: Queue, connect: Connect
) -> None:
    queue, clock = committed, Clock(committed.conn)
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, ready)"
        " SELECT 'a', 'ana@example.com', true FROM generate_series(1, 10001)"
    )
    clock.forward(10 * measure_too_long(queue, connect) + 8 * SECOND)
    assert measure(queue) == 1
    counted_at = clock.now
    clock.forward(30 * SECOND)
    found = pending(queue)
    assert (found.emails, found.at_least, found.as_of) == (10000, True, counted_at)
    measure_too_long(queue, connect)
    assert pending(queue) == found, "goes on to be shown"
    clock.forward(30 * SECOND)
    assert measure(queue) == 1
    assert (pending(queue).emails, pending(queue).at_least) == (10001, False)


def test_counting_ignores_planner_settings_of_the_session(queue: Queue) -> None:
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, ready)"
        " SELECT 'a', 'ana@example.com', true FROM generate_series(1, 2000)"
    )
    queue.run("ANALYZE email_queue")
    scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'email_queue'"
    before = queue.value(scans)
    queue.run("SET LOCAL enable_seqscan = off")
    queue.rows("SELECT * FROM mailgres.count_depth()")
    assert queue.value(scans) > before
