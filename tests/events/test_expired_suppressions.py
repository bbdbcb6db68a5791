"""Suppressions that have expired are deleted after a week."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from support.postgres import Connect
from support.queue import Clock, Queue

MINUTE = timedelta(minutes=1)


def expiring(queue: Queue, clock: Clock, ago: timedelta, count: int = 1) -> None:
    insert = """
        INSERT INTO email_suppressions (recipient_email, reason, expires_at)
        SELECT format('%%s-%%s@example.com', n, %s::text), 'soft_bounced', %s
        FROM generate_series(1, %s) n
    """
    queue.run(insert, ago.total_seconds(), clock.now - ago, count)


def test_expired_suppressions_are_deleted_after_a_week_in_chunks(
    queue: Queue, clock: Clock
) -> None:
    week = timedelta(days=7)
    expiring(queue, clock, week, 25)
    expiring(queue, clock, week - MINUTE)
    expiring(queue, clock, -MINUTE)
    queue.suppress()
    delete = "SELECT mailgres.delete_expired_suppressions(10)"
    assert [queue.value(delete) for _ in range(4)] == [10, 10, 5, 0]
    assert queue.value("SELECT count(*) FROM email_suppressions") == 3


def test_a_suppression_that_is_renewed_just_now_is_not_deleted(
    conn: psycopg.Connection, connect: Connect
) -> None:
    queue = Queue(conn)
    expiring(queue, Clock(conn), timedelta(days=8))
    with connect(autocommit=False) as other:
        other.execute("UPDATE email_suppressions SET expires_at = NULL")
        assert queue.value("SELECT mailgres.delete_expired_suppressions()") == 0
        other.commit()
    assert queue.value("SELECT mailgres.delete_expired_suppressions()") == 0
    assert queue.value("SELECT count(*) FROM email_suppressions WHERE expires_at IS NULL") == 1


def test_expired_suppressions_are_found_by_their_index(queue: Queue, clock: Clock) -> None:
    queue.run(
        """
        INSERT INTO email_suppressions (recipient_email, reason)
        SELECT n || '@example.com', 'bounced' FROM generate_series(1, 5000) n
        """
    )
    expiring(queue, clock, timedelta(days=8), 3)
    read = """
        SELECT pg_stat_get_xact_tuples_returned('email_suppressions'::regclass)
             + pg_stat_get_xact_tuples_fetched('email_suppressions'::regclass)
    """
    with queue.conn.transaction():
        before = queue.value(read)
        assert queue.value("SELECT mailgres.delete_expired_suppressions()") == 3
        assert queue.value(read) - before < 20
