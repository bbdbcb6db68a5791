"""The clock of a test's own database can be moved, stopped and given back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from mailgres import testing
from support.postgres import Connect

HOUR = timedelta(hours=1)


def clock(connection: psycopg.Connection) -> datetime:
    row = connection.execute("SELECT mailgres.now()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def offset(connection: psycopg.Connection) -> timedelta:
    row = connection.execute("SELECT mailgres.now() - pg_catalog.now()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def test_journeys_add_up_for_every_connection(connect: Connect) -> None:
    here, there = connect(), connect()
    assert offset(there) == timedelta(0)
    testing.travel(here, HOUR)
    testing.travel(here, HOUR + timedelta(microseconds=1))
    assert offset(here) == offset(there) == 2 * HOUR + timedelta(microseconds=1)
    testing.travel(there, -3 * HOUR)
    assert offset(here) == -HOUR + timedelta(microseconds=1)


def test_time_travel_by_a_day_is_24_hours_in_any_time_zone(conn: psycopg.Connection) -> None:
    conn.execute("SET timezone TO 'Europe/Berlin'")
    testing.freeze(conn, datetime(2026, 3, 28, 12, tzinfo=UTC))
    testing.travel(conn, timedelta(days=1))
    assert clock(conn) == datetime(2026, 3, 29, 12, tzinfo=UTC)


def test_a_frozen_clock_moves_only_by_travel(conn: psycopg.Connection) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    testing.travel(conn, HOUR)
    testing.freeze(conn, at)
    assert clock(conn) == clock(conn) == at
    testing.travel(conn, HOUR)
    assert clock(conn) == at + HOUR


def test_freezing_without_a_time_stops_the_clock_now(conn: psycopg.Connection) -> None:
    before = clock(conn)
    testing.freeze(conn)
    frozen = clock(conn)
    assert before <= frozen == clock(conn)


def test_resetting_the_clock_restores_the_original_function(conn: psycopg.Connection) -> None:
    definition = """
        SELECT pg_get_functiondef(oid), proacl FROM pg_proc WHERE oid = 'mailgres.now'::regproc
    """
    before = conn.execute(definition).fetchone()
    testing.travel(conn, HOUR)
    assert conn.execute(definition).fetchone() != before
    testing.reset(conn)
    testing.reset(conn)
    assert conn.execute(definition).fetchone() == before
    assert conn.execute("SELECT to_regclass('mailgres.time_travel')").fetchone() == (None,)


def test_time_travel_is_part_of_the_transaction_of_the_caller(connect: Connect) -> None:
    traveller, other = connect(autocommit=False), connect()
    testing.travel(traveller, HOUR)
    traveller.rollback()
    assert offset(other) == timedelta(0)


def test_the_clock_function_stays_stable_during_time_travel(conn: psycopg.Connection) -> None:
    testing.travel(conn, HOUR)
    row = conn.execute("SELECT provolatile FROM pg_proc WHERE oid = 'mailgres.now'::regproc")
    assert row.fetchone() == ("s",)


@pytest.mark.parametrize("prepared", [False, True])
def test_the_queue_follows_time_travel(conn: psycopg.Connection, prepared: bool) -> None:  # noqa: FBT001
    enqueue = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', '{}')"
    due = "SELECT count(*) FROM process_pending_emails_for_retry(10)"
    hold = "UPDATE email_queue SET next_retry_at = mailgres.now() + interval '1 hour'"
    for statement in (enqueue, hold):
        conn.execute(statement, prepare=prepared)
    assert conn.execute(due, prepare=prepared).fetchone() == (0,)
    testing.travel(conn, HOUR)
    assert conn.execute(due, prepare=prepared).fetchone() == (1,)
