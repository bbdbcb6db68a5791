"""How a janitor runs: in chunks, one process at a time, within limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from janitor.harness import DAY, ME, JanitorHarness, archived, ids, put
from mailgres import database, queries
from mailgres.errors import DatabaseUnreachable
from mailgres.janitor import JANITORS, Done, Janitor, WorkerInfo, run, runner
from support.concurrency import at_once
from support.queue import report

FULL: LiteralString = "SELECT %(chunk)s"
LOCK = "SELECT pg_advisory_xact_lock(hashtext('mailgres.janitor.' || %s))"


def janitor(query: LiteralString, chunk: int | None = 100, *, locked: bool = True) -> Janitor:
    return Janitor(
        name="probe", purpose="", every=timedelta(1), query=query, chunk=chunk, locked=locked
    )


# --- each janitor


def promote(harness: JanitorHarness) -> Callable[[], bool]:
    queue_id = harness.enqueue(scheduled_for=harness.clock.now + DAY)
    harness.clock.forward(DAY)
    return lambda: harness.email(queue_id).ready is True


def reap(harness: JanitorHarness) -> Callable[[], bool]:
    queue_id = harness.enqueue()
    harness.claim()
    harness.clock.forward(DAY)
    return lambda: harness.email(queue_id).status == "pending"


def expire(harness: JanitorHarness) -> Callable[[], bool]:
    queue_id = harness.enqueue(expires_at=harness.clock.now + DAY)
    harness.clock.forward(DAY)
    return lambda: harness.email(queue_id).dead_reason == "expired"


def archive_dead_letters(harness: JanitorHarness) -> Callable[[], bool]:
    (queue_id,) = put(harness, "failed")
    harness.clock.forward(8 * DAY)
    return lambda: queue_id in archived(harness)


def purge_archive(harness: JanitorHarness) -> Callable[[], bool]:
    (queue_id,) = put(harness, "failed")
    harness.clock.forward(8 * DAY)
    harness.run("SELECT mailgres.archive_dead_letters()")
    harness.clock.forward(91 * DAY)
    return lambda: queue_id not in ids(harness) | archived(harness)


def delete_expired_emails(harness: JanitorHarness) -> Callable[[], bool]:
    (queue_id,) = put(harness, "sent")
    harness.clock.forward(91 * DAY)
    return lambda: queue_id not in ids(harness)


def fold_rollups(harness: JanitorHarness) -> Callable[[], bool]:
    harness.enqueue()
    harness.attempt("sent")
    sent = "SELECT sum(emails) FROM mailgres.rollup_by_tenant WHERE status = 'sent'"
    return lambda: harness.value(sent) == 1


def measure_depth(harness: JanitorHarness) -> Callable[[], bool]:
    harness.enqueue()
    harness.clock.forward(timedelta(minutes=1))  # who counted just now does not count again
    return lambda: harness.value("SELECT sum(emails) FROM mailgres.depth_by_template") == 1


def match_email_events(harness: JanitorHarness) -> Callable[[], bool]:
    # At once: a running janitor would look for the email between the event and the email, and
    # then not again for some time.
    with harness.conn.transaction():
        harness.run("SELECT record_email_event('resend', 'delivered', 're_1')")
        queue_id = harness.enqueue()
        sent = "UPDATE email_queue SET status = 'sent', resend_id = 're_1' WHERE id = %s"
        harness.run(sent, queue_id)
    matched = "SELECT count(*) FROM email_events WHERE queue_id = %s"
    return lambda: harness.value(matched, queue_id) == 1


def delete_expired_rollups(harness: JanitorHarness) -> Callable[[], bool]:
    old = harness.clock.now - 9 * DAY
    harness.run("INSERT INTO mailgres.rollup_by_minute VALUES (%s, 'sent', '', 1)", old)
    left = "SELECT minute FROM mailgres.rollup_by_minute WHERE minute = %s"
    return lambda: harness.rows(left, old) == []


def heartbeat(harness: JanitorHarness) -> Callable[[], bool]:
    reported = "SELECT worker, version, details FROM mailgres.workers"
    return lambda: harness.rows(reported) == [("worker-1", "1.2.3", {"concurrency": 10})]


def delete_stale_workers(harness: JanitorHarness) -> Callable[[], bool]:
    harness.run("SELECT mailgres.heartbeat('gone')")
    harness.clock.forward(2 * DAY)
    return lambda: not harness.rows("SELECT worker FROM mailgres.workers WHERE worker = 'gone'")


def notify(harness: JanitorHarness) -> Callable[[], bool]:
    harness.run("UPDATE mailgres.providers SET circuit = 'open'")
    reported = (
        "SELECT rule FROM mailgres.alerts WHERE rule = 'circuit_open' AND notified = 'firing'"
    )
    return lambda: len(harness.rows(reported)) == 1


def capture(harness: JanitorHarness, fault: str) -> UUID:
    """Capture an email with a fault."""
    queue_id = harness.enqueue()
    message = [{"key": "k", "queue_id": str(queue_id), "message": {"to": "ana@example.com"}}]
    harness.run("SELECT mailgres.set_capture_fault(%s)", fault)
    harness.run("SELECT mailgres.capture(%s)", Jsonb(message))
    return queue_id


def report_captured(harness: JanitorHarness) -> Callable[[], bool]:
    # At once: a running janitor would report the event before the email is sent.
    with harness.conn.transaction():
        queue_id = capture(harness, "bounce")
        harness.run("SELECT mark_email_sent(%s, 'k')", queue_id)
    reported = "SELECT event FROM email_events WHERE queue_id = %s"
    return lambda: [row.event for row in harness.rows(reported, queue_id)] == ["bounced"]


def delete_captured(harness: JanitorHarness) -> Callable[[], bool]:
    capture(harness, "unanswered")
    harness.clock.forward(8 * DAY)
    return lambda: harness.value("SELECT count(*) FROM mailgres.captured") == 0


def run_bulk_actions(harness: JanitorHarness) -> Callable[[], bool]:
    # Not a retry: what other scenarios did may have suppressed the address.
    queue_id = harness.enqueue(scheduled_for=harness.clock.now + DAY)
    harness.run("SELECT mailgres.start_bulk_action('cancel', '{}')")
    return lambda: harness.email(queue_id).status == "cancelled"


def delete_expired_suppressions(harness: JanitorHarness) -> Callable[[], bool]:
    add = """
        INSERT INTO email_suppressions (recipient_email, reason, expires_at)
        VALUES ('expired@example.com', 'soft_bounced', %s)
    """
    harness.run(add, harness.clock.now - 8 * DAY)
    left = "SELECT count(*) FROM email_suppressions WHERE recipient_email = 'expired@example.com'"
    return lambda: harness.value(left) == 0


SCENARIOS = {
    picked.__name__: picked
    for picked in (
        *(
            fold_rollups,
            measure_depth,
            delete_expired_rollups,
            match_email_events,
            heartbeat,
            promote,
            reap,
            expire,
            archive_dead_letters,
            purge_archive,
            delete_expired_emails,
        ),
        *(delete_stale_workers, notify, report_captured, delete_captured),
        *(delete_expired_suppressions, run_bulk_actions),
    )
}


def test_every_janitor_is_tested() -> None:
    assert SCENARIOS.keys() == JANITORS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_janitor_does_its_work(harness: JanitorHarness, name: str) -> None:
    is_done = SCENARIOS[name](harness)
    assert not is_done()
    assert harness.clean(name) == Done(handled=1, chunks=1)
    assert is_done()
    assert harness.locks() == 0
    if name != "heartbeat":
        assert harness.clean(name) == Done(handled=0, chunks=1)


# --- chunks


def test_a_janitor_works_in_chunks_until_nothing_is_left(harness: JanitorHarness) -> None:
    put(harness, "failed", 35)
    harness.clock.forward(8 * DAY)
    assert harness.clean("archive_dead_letters", chunk=10) == Done(handled=35, chunks=4)
    assert len(archived(harness)) == 35


def test_each_chunk_is_a_transaction(harness: JanitorHarness) -> None:
    """What a chunk did stays done when a later one fails."""
    put(harness, "failed", 35)
    harness.clock.forward(8 * DAY)
    harness.run(
        "ALTER TABLE mailgres.dead_letters ADD CHECK (tenant_id = 'default'),"
        " ADD COLUMN number int GENERATED ALWAYS AS IDENTITY CHECK (number <= 25)"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        harness.clean("archive_dead_letters", chunk=10)
    assert (len(archived(harness)), len(ids(harness))) == (20, 15)
    assert harness.locks() == 0


def test_a_run_ends_after_its_most_chunks(harness: JanitorHarness) -> None:
    assert harness.run_janitor(janitor(FULL)) == Done(
        handled=runner.MOST_CHUNKS * 100, chunks=runner.MOST_CHUNKS, more=True
    )


def test_a_janitor_can_be_stopped_between_chunks(harness: JanitorHarness) -> None:
    answers = iter([False, False, True])
    done = run(janitor(FULL), harness.pool.connection, ME, stopped=lambda: next(answers))
    assert done == Done(handled=200, chunks=2, more=True)


# --- limits


def test_statements_have_a_time_limit(harness: JanitorHarness) -> None:
    """For this transaction only: the connection goes back to the pool without it."""
    limit: LiteralString = "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"
    assert harness.run_janitor(janitor(limit, chunk=None)).handled == 5000
    with harness.pool.connection() as connection:
        assert connection.execute(limit).fetchone() == (0,)


CANCELED_ABOVE = """
    CREATE FUNCTION heavy(size int, most int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        IF size > most THEN
            RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';
        END IF;
        RETURN nextval('public.calls') * 0 + size - 1;
    END $$;
    CREATE SEQUENCE calls;
"""


def test_a_chunk_that_takes_too_long_is_made_smaller(harness: JanitorHarness) -> None:
    harness.run(CANCELED_ABOVE)
    assert harness.run_janitor(janitor("SELECT public.heavy(%(chunk)s, 10)")) == Done(
        handled=9, chunks=2
    )


def test_a_single_row_that_takes_too_long_is_an_error(harness: JanitorHarness) -> None:
    harness.run(CANCELED_ABOVE)
    for chunk in (1000, None):
        with pytest.raises(psycopg.errors.QueryCanceled):
            harness.run_janitor(
                janitor("SELECT public.heavy(coalesce(%(chunk)s::int, 1), 0)", chunk)
            )


# --- one at a time


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_janitor_is_busy_while_another_process_has_its_lock(
    harness: JanitorHarness, name: str
) -> None:
    is_done = SCENARIOS[name](harness)
    with psycopg.connect(harness.url) as other:
        other.execute(LOCK, (name,))
        done = harness.clean(name)
        if JANITORS[name].locked:
            assert (done, is_done()) == (Done(busy=True), False)
        else:
            assert (done, is_done()) == (Done(handled=1, chunks=1), True)
    assert harness.clean(name).busy is False
    assert is_done()


@pytest.mark.parametrize("name", JANITORS)
def test_lock_and_work_are_one_statement(name: str) -> None:
    one = JANITORS[name]
    lock = "WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))"
    assert (lock in one.query) == one.locked
    assert one.query == queries.load("janitor/janitors.sql")[name]
    assert (one.chunk is None) == (name in ("heartbeat", "measure_depth"))


def test_locks_of_different_janitors_are_different(harness: JanitorHarness) -> None:
    hashes = {harness.value("SELECT hashtext(%s)", f"mailgres.janitor.{name}") for name in JANITORS}
    assert len(hashes) == len(JANITORS)


def test_two_runs_of_a_janitor_at_once_do_the_work_once(harness: JanitorHarness) -> None:
    emails = put(harness, "failed", 300)
    harness.clock.forward(8 * DAY)
    one = replace(JANITORS["archive_dead_letters"], chunk=20)

    def work() -> int:
        handled = 0
        while not (done := harness.run_janitor(one)).chunks or done.handled:
            handled += done.handled
        return handled

    assert sum(at_once([work, work])) == 300
    assert archived(harness) == set(emails)
    lengths = harness.rows("SELECT DISTINCT jsonb_array_length(log) FROM mailgres.dead_letters")
    assert lengths == [(2,)]
    assert harness.locks() == 0


# --- connections


@pytest.mark.parametrize("autocommit", [True, False])
def test_janitors_run_on_any_kind_of_connection(harness: JanitorHarness, autocommit: bool) -> None:  # noqa: FBT001
    put(harness, "failed", 3)
    harness.clock.forward(8 * DAY)

    def connect() -> AbstractContextManager[psycopg.Connection[Any]]:
        return psycopg.connect(harness.url, autocommit=autocommit)

    assert run(JANITORS["archive_dead_letters"], connect, ME).handled == 3
    assert len(archived(harness)) == 3


# --- rollups


def test_counts_are_right_after_whatever_happened(harness: JanitorHarness) -> None:
    outcomes = ("sent", "permanent", "transient", "sent", "ambiguous", "rate")
    for number in range(60):
        harness.enqueue(tenant_id=f"t{number % 3}", max_retries=number % 2)
    for turn in range(12):
        claimed = harness.claim()
        reported = [
            report(email, outcomes[(turn + place * 5) % 6], code=f"E{place % 2}")
            for place, email in enumerate(claimed)
        ]
        harness.finish(*reported)
        harness.clock.forward(timedelta(hours=1))
        harness.clean("fold_rollups", chunk=7)
    harness.clean("fold_rollups", chunk=7)
    for rollup, column in (("tenant", "tenant_id"), ("template", "template_type")):
        columns = f"date_trunc('hour', created_at, 'UTC'), {column}, status"
        truth = harness.rows(
            f"SELECT {columns}, count(*) FROM email_queue"
            " WHERE status IN ('sent', 'failed', 'cancelled') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        counted = harness.rows(
            f"SELECT hour, {column}, status, sum(emails) FROM mailgres.rollup_by_{rollup}"
            " GROUP BY 1, 2, 3 HAVING sum(emails) <> 0 ORDER BY 1, 2, 3"
        )
        assert len(truth) > 1
        assert [tuple(row) for row in counted] == [tuple(row) for row in truth]
    assert harness.value("SELECT count(*) FROM mailgres.rollup_deltas") == 0


# --- what goes wrong is logged

QUOTES_AN_EMAIL = """
    CREATE FUNCTION broken(int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'a check failed'
            USING DETAIL = 'Failing row contains (ana@example.com)', ERRCODE = '23514';
    END $$
"""


def test_an_error_of_the_database_is_logged_without_details(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.run(QUOTES_AN_EMAIL)
    broken = janitor("SELECT public.broken(%(chunk)s)")
    runner.attempt(broken, harness.pool.connection, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "janitor.probe failed: a check failed"
    assert {"action": "janitor.probe", "sqlstate": "23514", "worker": "worker-1"}.items() <= (
        record.__dict__.items()
    )
    assert "ana@" not in caplog.text


def test_a_janitor_logs_an_unreachable_database_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def connect() -> psycopg.Connection[Any]:
        return database.connect("postgresql://me:secret@127.0.0.1:1/mail")

    with pytest.raises(DatabaseUnreachable):
        connect()
    runner.attempt(JANITORS["reap"], connect, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert record.getMessage().startswith("janitor.reap failed: Cannot connect to")
    assert "secret" not in caplog.text


def test_a_bug_in_a_janitor_is_logged_without_its_text(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def details() -> dict[str, object]:
        raise KeyError("gone")

    mine = WorkerInfo("w", "", details)
    runner.attempt(JANITORS["heartbeat"], harness.pool.connection, mine, stopped=lambda: False)
    (record,) = caplog.records
    assert "KeyError at " in record.getMessage()
    assert "gone" not in record.getMessage()
    assert record.__dict__["action"] == "janitor.heartbeat"
    # Only janitors that each worker runs for itself ask for its details.
    assert run(JANITORS["promote"], harness.pool.connection, mine) == Done(handled=0, chunks=1)


@pytest.mark.parametrize(
    ("name", "level"), [("archive_dead_letters", logging.INFO), ("heartbeat", logging.DEBUG)]
)
def test_each_run_of_a_janitor_is_logged(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture, name: str, level: int
) -> None:
    caplog.set_level(logging.DEBUG, "mailgres.janitor")
    SCENARIOS[name](harness)
    runner.attempt(JANITORS[name], harness.pool.connection, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["handled"]) == (level, 1)
    assert record.__dict__["action"] == f"janitor.{name}"
