"""All janitors at their intervals, until they are told to stop."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from janitor.house import ME, House, until
from janitor.test_runner import DUTIES, FULL, janitor
from mailgres.janitor import JANITORS, scheduler
from mailgres.janitor.scheduler import Scheduler

OFTEN = timedelta(milliseconds=20)
ALL = [replace(one, every=OFTEN) for one in JANITORS.values()]
BLOCKED = replace(janitor("SELECT 0 FROM pg_advisory_xact_lock(42)"), every=OFTEN)
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture(autouse=True)
def _leaves_no_thread_behind() -> object:
    before = set(threading.enumerate())
    yield
    until(lambda: not [one for one in threading.enumerate() if one not in before], 20)


def test_it_does_all_duties(house: House) -> None:
    with Scheduler(house.pool, ME, ALL) as janitors:
        for duty in DUTIES.values():
            until(duty(house))
        assert janitors.stop() is True
    assert house.locks() == 0


def test_several_at_once(house: House) -> None:
    with Scheduler(house.pool, ME, ALL), Scheduler(house.pool, replace(ME, name="other"), ALL):
        for name, duty in DUTIES.items():
            if name != "heartbeat":
                until(duty(house))
        until(lambda: house.value("SELECT count(*) FROM mailgres.workers") == 2)
    assert house.locks() == 0


def test_at_the_start_each_runs_at_once(house: House) -> None:
    """Not an interval later."""
    is_done = DUTIES["archive"](house)
    with Scheduler(house.pool, ME):
        until(is_done, 30)


def test_an_error_stops_no_other_and_is_tried_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(janitor("SELECT 1 / (%(chunk)s - 100)"), every=OFTEN)
    is_done = DUTIES["promote"](house)

    def failures() -> int:
        return sum(
            record.__dict__.get("action") == "janitor.probe" and record.levelno == logging.ERROR
            for record in caplog.records
        )

    with Scheduler(house.pool, ME, [broken, *ALL]):
        until(lambda: failures() >= 3 and is_done())
    assert {record.name for record in caplog.records} == {"mailgres.janitor.runner"}


def test_a_lost_connection_is_replaced(house: House, caplog: pytest.LogCaptureFixture) -> None:
    with Scheduler(house.pool, ME, ALL):
        until(lambda: house.rows("SELECT worker FROM mailgres.workers"))
        house.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        until(DUTIES["promote"](house))
    assert all(
        "action" in one.__dict__ for one in caplog.records if one.name.startswith("mailgres")
    )


def test_the_end_waits_but_not_for_ever(house: House) -> None:
    with psycopg.connect(house.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(42)")
        janitors = Scheduler(house.pool, ME, [BLOCKED])
        janitors.start()
        until(lambda: house.value(WAITING) == 1)
        assert janitors.stop(timeout=0.05) is False
        other.rollback()
        assert janitors.stop() is True


def test_one_run_of_each_at_a_time(house: House) -> None:
    """However long it takes: the others go on, and it is not started a second time."""
    with psycopg.connect(house.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(42)")
        with Scheduler(house.pool, ME, [BLOCKED, *ALL]):
            for _ in range(3):
                until(DUTIES["promote"](house))
            assert house.value(WAITING) == 1
            other.rollback()


def test_a_long_run_ends_after_its_chunk(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailgres.janitor.runner.MOST_CHUNKS", 10**9)
    house.run("CREATE SEQUENCE chunks")
    endless = replace(janitor("SELECT nextval('public.chunks') * 0 + %(chunk)s"), every=OFTEN)
    with Scheduler(house.pool, ME, [endless]) as janitors:
        until(lambda: house.value("SELECT last_value FROM chunks") > 5)
        assert janitors.stop() is True


def test_it_starts_once(house: House) -> None:
    janitors = Scheduler(house.pool, ME, [janitor(FULL)])
    assert janitors.stop() is True  # before it was started, there is nothing to end
    with pytest.raises(RuntimeError, match="make new ones"):
        janitors.start()
    with Scheduler(house.pool, ME, ALL) as running, pytest.raises(RuntimeError):
        running.start()


def test_a_callable_instead_of_a_pool(house: House) -> None:
    is_done = DUTIES["archive"](house)
    with Scheduler(lambda: psycopg.connect(house.url), ME, ALL):
        until(is_done)


def test_intervals_have_jitter(house: House) -> None:
    with Scheduler(house.pool, ME) as janitors:
        assert janitors._scheduler is not None
        triggers = {job.id: job.trigger for job in janitors._scheduler.get_jobs()}
    assert triggers.keys() == JANITORS.keys()
    for name, trigger in triggers.items():
        every = JANITORS[name].every
        assert (trigger.interval, trigger.jitter) == (every, every.total_seconds() / 10)


FAILURES = "SELECT worker, failures, error FROM mailgres.janitor_failures WHERE janitor = 'probe'"


def test_failures_in_a_row_are_counted_until_it_succeeds(house: House) -> None:
    house.run("CREATE TABLE broken AS SELECT 0 AS divisor")
    broken = replace(janitor("SELECT 1 / divisor FROM public.broken"), every=OFTEN)
    with Scheduler(house.pool, ME, [broken]):
        until(lambda: any(row.failures >= 3 for row in house.rows(FAILURES)))
        (row,) = house.rows(FAILURES)
        assert (row.worker, row.error) == (ME.name, "division by zero")
        house.run("UPDATE broken SET divisor = 1")
        until(lambda: house.rows(FAILURES) == [])


def test_janitors_run_on_after_the_clock_went_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for a time of day, and that is an hour away all of a sudden."""
    monkeypatch.setattr(scheduler, "CLOCK_CHECK_SECONDS", 0.01)
    wall = [time.time()]
    counted = replace(
        janitor("INSERT INTO public.runs DEFAULT VALUES RETURNING 0"), every=timedelta(hours=1)
    )
    house.run("CREATE TABLE runs (at timestamptz DEFAULT clock_timestamp())")
    with Scheduler(house.pool, ME, [counted], clock=lambda: wall[0] + time.monotonic()):
        until(lambda: house.value("SELECT count(*) FROM runs") == 1)
        wall[0] -= 3600
        until(lambda: house.value("SELECT count(*) FROM runs") == 2)
