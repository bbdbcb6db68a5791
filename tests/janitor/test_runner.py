"""How a duty is done: in chunks, by one at a time, within limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from janitor.house import DAY, ME, House, archived, ids, put
from mailgres import database, queries
from mailgres.errors import DatabaseUnreachable
from mailgres.janitor import JANITORS, Done, Janitor, WorkerInfo, run, runner
from support.concurrency import at_once
from support.queue import report

FULL: LiteralString = "SELECT %(chunk)s"
LOCK = "SELECT pg_advisory_xact_lock(hashtext('mailgres.janitor.' || %s))"


def janitor(query: LiteralString, chunk: int | None = 100, *, locked: bool = True) -> Janitor:
    return Janitor(
        name="probe", duty="", every=timedelta(1), query=query, chunk=chunk, locked=locked
    )


# --- each duty


def promote(house: House) -> Callable[[], bool]:
    queue_id = house.enqueue(scheduled_for=house.clock.now + DAY)
    house.clock.forward(DAY)
    return lambda: house.email(queue_id).ready is True


def reap(house: House) -> Callable[[], bool]:
    queue_id = house.enqueue()
    house.claim()
    house.clock.forward(DAY)
    return lambda: house.email(queue_id).status == "pending"


def expire(house: House) -> Callable[[], bool]:
    queue_id = house.enqueue(expires_at=house.clock.now + DAY)
    house.clock.forward(DAY)
    return lambda: house.email(queue_id).dead_reason == "expired"


def archive(house: House) -> Callable[[], bool]:
    (queue_id,) = put(house, "failed")
    house.clock.forward(8 * DAY)
    return lambda: queue_id in archived(house)


def purge(house: House) -> Callable[[], bool]:
    (queue_id,) = put(house, "failed")
    house.clock.forward(8 * DAY)
    house.run("SELECT mailgres.archive_dead_letters()")
    house.clock.forward(91 * DAY)
    return lambda: queue_id not in ids(house) | archived(house)


def retention(house: House) -> Callable[[], bool]:
    (queue_id,) = put(house, "sent")
    house.clock.forward(91 * DAY)
    return lambda: queue_id not in ids(house)


def rollups(house: House) -> Callable[[], bool]:
    house.enqueue()
    house.attempt("sent")
    sent = "SELECT sum(emails) FROM mailgres.rollup_by_tenant WHERE status = 'sent'"
    return lambda: house.value(sent) == 1


def depth(house: House) -> Callable[[], bool]:
    house.enqueue()
    house.clock.forward(timedelta(minutes=1))  # who counted just now does not count again
    return lambda: house.value("SELECT sum(emails) FROM mailgres.depth_by_template") == 1


def trim(house: House) -> Callable[[], bool]:
    old = house.clock.now - 9 * DAY
    house.run("INSERT INTO mailgres.rollup_by_minute VALUES (%s, 'sent', '', 1)", old)
    left = "SELECT minute FROM mailgres.rollup_by_minute WHERE minute = %s"
    return lambda: house.rows(left, old) == []


def heartbeat(house: House) -> Callable[[], bool]:
    told = "SELECT worker, version, details FROM mailgres.workers"
    return lambda: house.rows(told) == [("worker-1", "1.2.3", {"concurrency": 10})]


def forget(house: House) -> Callable[[], bool]:
    house.run("SELECT mailgres.heartbeat('gone')")
    house.clock.forward(2 * DAY)
    return lambda: not house.rows("SELECT worker FROM mailgres.workers WHERE worker = 'gone'")


def tell(house: House) -> Callable[[], bool]:
    put(house, "failed")
    house.clock.forward(DAY)
    told = "SELECT count(*) FROM mailgres.notices WHERE told_at = mailgres.now()"
    return lambda: house.value(told) == 1


def alerts(house: House) -> Callable[[], bool]:
    house.run("UPDATE mailgres.providers SET circuit = 'open'")
    told = "SELECT rule FROM mailgres.alerts WHERE rule = 'circuit_open' AND told = 'firing'"
    return lambda: len(house.rows(told)) == 1


def webhook(house: House) -> Callable[[], bool]:
    house.run("INSERT INTO mailgres.news (body) VALUES ('{}')")
    house.clock.forward(DAY)
    return lambda: house.rows("SELECT id FROM mailgres.news WHERE body = '{}'") == []


def deaths(house: House) -> Callable[[], object]:
    house.enqueue()
    house.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    return lambda: not house.value("SELECT count(*) FROM mailgres.deaths")


DUTIES = {
    duty.__name__: duty
    for duty in (
        *(rollups, depth, trim, heartbeat, promote, reap, expire, archive, purge, retention),
        *(forget, deaths, tell, alerts, webhook),
    )
}


def test_every_duty_is_tested() -> None:
    assert DUTIES.keys() == JANITORS.keys()


@pytest.mark.parametrize("name", DUTIES)
def test_each_duty(house: House, name: str) -> None:
    is_done = DUTIES[name](house)
    assert not is_done()
    assert house.clean(name) == Done(handled=1, chunks=1)
    assert is_done()
    assert house.locks() == 0
    if name != "heartbeat":
        assert house.clean(name) == Done(handled=0, chunks=1)


# --- chunks


def test_chunks_until_nothing_is_left(house: House) -> None:
    put(house, "failed", 35)
    house.clock.forward(8 * DAY)
    assert house.clean("archive", chunk=10) == Done(handled=35, chunks=4)
    assert len(archived(house)) == 35


def test_each_chunk_is_a_transaction(house: House) -> None:
    """What a chunk did stays done when a later one fails."""
    put(house, "failed", 35)
    house.clock.forward(8 * DAY)
    house.run(
        "ALTER TABLE mailgres.dead_letters ADD CHECK (tenant_id = 'default'),"
        " ADD COLUMN number int GENERATED ALWAYS AS IDENTITY CHECK (number <= 25)"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        house.clean("archive", chunk=10)
    assert (len(archived(house)), len(ids(house))) == (20, 15)
    assert house.locks() == 0


def test_no_endless_run(house: House) -> None:
    assert house.run_janitor(janitor(FULL)) == Done(
        handled=runner.MOST_CHUNKS * 100, chunks=runner.MOST_CHUNKS, more=True
    )


def test_stopped_between_chunks(house: House) -> None:
    answers = iter([False, False, True])
    done = run(janitor(FULL), house.pool.connection, ME, stopped=lambda: next(answers))
    assert done == Done(handled=200, chunks=2, more=True)


# --- limits


def test_statements_have_a_time_limit(house: House) -> None:
    """For this transaction only: the connection goes back to the pool without it."""
    limit: LiteralString = "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"
    assert house.run_janitor(janitor(limit, chunk=None)).handled == 5000
    with house.pool.connection() as connection:
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


def test_a_chunk_that_takes_too_long_is_made_smaller(house: House) -> None:
    house.run(CANCELED_ABOVE)
    assert house.run_janitor(janitor("SELECT public.heavy(%(chunk)s, 10)")) == Done(
        handled=9, chunks=2
    )


def test_one_row_that_takes_too_long(house: House) -> None:
    house.run(CANCELED_ABOVE)
    for chunk in (1000, None):
        with pytest.raises(psycopg.errors.QueryCanceled):
            house.run_janitor(janitor("SELECT public.heavy(coalesce(%(chunk)s::int, 1), 0)", chunk))


# --- one at a time


@pytest.mark.parametrize("name", DUTIES)
def test_while_somebody_else_is_at_it(house: House, name: str) -> None:
    is_done = DUTIES[name](house)
    with psycopg.connect(house.url) as other:
        other.execute(LOCK, (name,))
        done = house.clean(name)
        if JANITORS[name].locked:
            assert (done, is_done()) == (Done(busy=True), False)
        else:
            assert (done, is_done()) == (Done(handled=1, chunks=1), True)
    assert house.clean(name).busy is False
    assert is_done()


@pytest.mark.parametrize("name", JANITORS)
def test_lock_and_work_are_one_statement(name: str) -> None:
    one = JANITORS[name]
    lock = "WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))"
    assert (lock in one.query) == one.locked
    assert one.query == queries.load("janitor.sql")[name]
    assert (one.chunk is None) == (name in ("heartbeat", "depth", "alerts", "webhook"))


def test_locks_of_different_duties_are_different(house: House) -> None:
    hashes = {house.value("SELECT hashtext(%s)", f"mailgres.janitor.{name}") for name in JANITORS}
    assert len(hashes) == len(JANITORS)


def test_two_at_once_do_the_work_once(house: House) -> None:
    emails = put(house, "failed", 300)
    house.clock.forward(8 * DAY)
    one = replace(JANITORS["archive"], chunk=20)

    def work() -> int:
        handled = 0
        while not (done := house.run_janitor(one)).chunks or done.handled:
            handled += done.handled
        return handled

    assert sum(at_once([work, work])) == 300
    assert archived(house) == set(emails)
    lengths = house.rows("SELECT DISTINCT jsonb_array_length(log) FROM mailgres.dead_letters")
    assert lengths == [(2,)]
    assert house.locks() == 0


# --- connections


@pytest.mark.parametrize("autocommit", [True, False])
def test_any_connection_will_do(house: House, autocommit: bool) -> None:  # noqa: FBT001
    put(house, "failed", 3)
    house.clock.forward(8 * DAY)

    def connect() -> AbstractContextManager[psycopg.Connection[Any]]:
        return psycopg.connect(house.url, autocommit=autocommit)

    assert run(JANITORS["archive"], connect, ME).handled == 3
    assert len(archived(house)) == 3


# --- rollups


def test_counts_are_right_after_whatever_happened(house: House) -> None:
    outcomes = ("sent", "permanent", "transient", "sent", "ambiguous", "rate")
    for number in range(60):
        house.enqueue(tenant_id=f"t{number % 3}", max_retries=number % 2)
    for turn in range(12):
        claimed = house.claim()
        told = [
            report(email, outcomes[(turn + place * 5) % 6], code=f"E{place % 2}")
            for place, email in enumerate(claimed)
        ]
        house.finish(*told)
        house.clock.forward(timedelta(hours=1))
        house.clean("rollups", chunk=7)
    house.clean("rollups", chunk=7)
    for rollup, column in (("tenant", "tenant_id"), ("template", "template_type")):
        columns = f"date_trunc('hour', created_at, 'UTC'), {column}, status"
        truth = house.rows(
            f"SELECT {columns}, count(*) FROM email_queue"
            " WHERE status IN ('sent', 'failed', 'cancelled') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        counted = house.rows(
            f"SELECT hour, {column}, status, sum(emails) FROM mailgres.rollup_by_{rollup}"
            " GROUP BY 1, 2, 3 HAVING sum(emails) <> 0 ORDER BY 1, 2, 3"
        )
        assert len(truth) > 1
        assert [tuple(row) for row in counted] == [tuple(row) for row in truth]
    assert house.value("SELECT count(*) FROM mailgres.rollup_deltas") == 0


# --- what goes wrong is logged

QUOTES_AN_EMAIL = """
    CREATE FUNCTION broken(int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'a check failed'
            USING DETAIL = 'Failing row contains (ana@example.com)', ERRCODE = '23514';
    END $$
"""


def test_an_error_of_the_database(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.run(QUOTES_AN_EMAIL)
    broken = janitor("SELECT public.broken(%(chunk)s)")
    runner.attempt(broken, house.pool.connection, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "janitor.probe failed: a check failed"
    assert {"action": "janitor.probe", "sqlstate": "23514", "worker": "worker-1"}.items() <= (
        record.__dict__.items()
    )
    assert "ana@" not in caplog.text


def test_an_unreachable_database(caplog: pytest.LogCaptureFixture) -> None:
    def connect() -> psycopg.Connection[Any]:
        return database.connect("postgresql://me:secret@127.0.0.1:1/mail")

    with pytest.raises(DatabaseUnreachable):
        connect()
    runner.attempt(JANITORS["reap"], connect, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert record.getMessage().startswith("janitor.reap failed: Cannot connect to")
    assert "secret" not in caplog.text


def test_a_bug(house: House, caplog: pytest.LogCaptureFixture) -> None:
    def details() -> dict[str, object]:
        raise KeyError("gone")

    mine = WorkerInfo("w", "", details)
    runner.attempt(JANITORS["heartbeat"], house.pool.connection, mine, stopped=lambda: False)
    (record,) = caplog.records
    assert "KeyError at " in record.getMessage()
    assert "gone" not in record.getMessage()
    assert record.__dict__["action"] == "janitor.heartbeat"
    # What the worker tells about itself is asked for by its own duties only.
    assert run(JANITORS["promote"], house.pool.connection, mine) == Done(handled=0, chunks=1)


@pytest.mark.parametrize(
    ("name", "level"), [("archive", logging.INFO), ("heartbeat", logging.DEBUG)]
)
def test_what_was_done_is_logged(
    house: House, caplog: pytest.LogCaptureFixture, name: str, level: int
) -> None:
    caplog.set_level(logging.DEBUG, "mailgres.janitor")
    DUTIES[name](house)
    runner.attempt(JANITORS[name], house.pool.connection, ME, stopped=lambda: False)
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["handled"]) == (level, 1)
    assert record.__dict__["action"] == f"janitor.{name}"
