"""All janitors run at their intervals until they are stopped."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from janitor.harness import ME, JanitorHarness
from janitor.test_runner import FULL, SCENARIOS, janitor
from mailgres.janitor import JANITORS, scheduler
from mailgres.janitor.scheduler import Scheduler
from support.concurrency import until

OFTEN = timedelta(milliseconds=20)
ALL = [replace(one, every=OFTEN) for one in JANITORS.values()]
BLOCKED = replace(janitor("SELECT 0 FROM pg_advisory_xact_lock(42)"), every=OFTEN)
WAITING = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(autouse=True)
def _leaves_no_thread_behind() -> object:
    before = set(threading.enumerate())
    yield
    until(lambda: not set(threading.enumerate()) - before, "no new thread is left")


def test_the_scheduler_runs_every_janitor(harness: JanitorHarness) -> None:
    with Scheduler(harness.pool, ME, ALL) as janitors:
        for name, picked in SCENARIOS.items():
            until(picked(harness), name)
        assert janitors.stop() is True
    assert harness.locks() == 0


def test_several_janitors_run_at_once(harness: JanitorHarness) -> None:
    with Scheduler(harness.pool, ME, ALL), Scheduler(harness.pool, replace(ME, name="other"), ALL):
        for name, picked in SCENARIOS.items():
            if name != "heartbeat":
                until(picked(harness), name)
        until(lambda: harness.value("SELECT count(*) FROM mailgres.workers") == 2, "both are seen")
    assert harness.locks() == 0


def test_a_scheduler_runs_each_janitor_at_its_start(harness: JanitorHarness) -> None:
    """Not an interval later."""
    is_done = SCENARIOS["archive_dead_letters"](harness)
    with Scheduler(harness.pool, ME):
        until(is_done, "it is archived")


def test_a_failing_janitor_stops_no_other_and_runs_again(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(janitor("SELECT 1 / (%(chunk)s - 100)"), every=OFTEN)
    is_done = SCENARIOS["promote"](harness)

    def failures() -> int:
        return sum(
            record.__dict__.get("action") == "janitor.probe" and record.levelno == logging.ERROR
            for record in caplog.records
        )

    with Scheduler(harness.pool, ME, [broken, *ALL]):
        until(lambda: failures() >= 3 and is_done(), "it fails thrice, and another works")
    # After three failures the alert janitor_failing may fire, too.
    known = {"mailgres.janitor.runner", "mailgres.janitor.notify"}
    assert {record.name for record in caplog.records} <= known


def test_a_lost_connection_is_replaced(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with Scheduler(harness.pool, ME, ALL):
        until(lambda: harness.rows("SELECT worker FROM mailgres.workers"), "they run")
        harness.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        until(SCENARIOS["promote"](harness), "promote")
    assert all(
        "action" in one.__dict__ for one in caplog.records if one.name.startswith("mailgres")
    )


def test_a_stopping_scheduler_waits_for_its_janitors_for_a_bounded_time(
    harness: JanitorHarness,
) -> None:
    with psycopg.connect(harness.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(42)")
        janitors = Scheduler(harness.pool, ME, [BLOCKED])
        janitors.start()
        until(lambda: harness.value(WAITING) == 1, "it waits for the lock")
        assert janitors.stop(timeout=0.05) is False
        other.rollback()
        assert janitors.stop() is True


def test_one_scheduler_runs_each_janitor_once_at_a_time(harness: JanitorHarness) -> None:
    """However long it takes: the others go on, and it is not started a second time."""
    with psycopg.connect(harness.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(42)")
        with Scheduler(harness.pool, ME, [BLOCKED, *ALL]):
            for _ in range(3):
                until(SCENARIOS["promote"](harness), "promote")
            assert harness.value(WAITING) == 1
            other.rollback()


def test_a_long_run_ends_after_its_chunk(
    harness: JanitorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailgres.janitor.runner.MOST_CHUNKS", 10**9)
    harness.run("CREATE SEQUENCE chunks")
    endless = replace(janitor("SELECT nextval('public.chunks') * 0 + %(chunk)s"), every=OFTEN)
    with Scheduler(harness.pool, ME, [endless]) as janitors:
        until(lambda: harness.value("SELECT last_value FROM chunks") > 5, "it works in chunks")
        assert janitors.stop() is True


def test_a_scheduler_starts_once(harness: JanitorHarness) -> None:
    janitors = Scheduler(harness.pool, ME, [janitor(FULL)])
    assert janitors.stop() is True  # before it was started, there is nothing to end
    with pytest.raises(RuntimeError, match="only once"):
        janitors.start()
    with Scheduler(harness.pool, ME, ALL) as running, pytest.raises(RuntimeError):
        running.start()


def test_the_scheduler_takes_a_callable_instead_of_a_pool(harness: JanitorHarness) -> None:
    is_done = SCENARIOS["archive_dead_letters"](harness)
    with Scheduler(lambda: psycopg.connect(harness.url), ME, ALL):
        until(is_done, "it is archived")


def test_the_intervals_of_the_scheduler_have_jitter(harness: JanitorHarness) -> None:
    with Scheduler(harness.pool, ME) as janitors:
        assert janitors._scheduler is not None
        triggers = {job.id: job.trigger for job in janitors._scheduler.get_jobs()}
    assert triggers.keys() == JANITORS.keys()
    for name, trigger in triggers.items():
        every = JANITORS[name].every
        assert (trigger.interval, trigger.jitter) == (every, every.total_seconds() / 10)


FAILURES = "SELECT worker, failures, error FROM mailgres.janitor_failures WHERE janitor = 'probe'"


def test_failures_in_a_row_are_counted_until_it_succeeds(harness: JanitorHarness) -> None:
    harness.run("CREATE TABLE broken AS SELECT 0 AS divisor")
    broken = replace(janitor("SELECT 1 / divisor FROM public.broken"), every=OFTEN)
    with Scheduler(harness.pool, ME, [broken]):
        until(lambda: any(row.failures >= 3 for row in harness.rows(FAILURES)), "three failures")
        (row,) = harness.rows(FAILURES)
        assert (row.worker, row.error) == (ME.name, "division by zero")
        harness.run("UPDATE broken SET divisor = 1")
        until(lambda: harness.rows(FAILURES) == [], "it succeeds")


def test_janitors_run_on_after_the_clock_went_back(
    harness: JanitorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for a time of day, and that is an hour away all of a sudden."""
    monkeypatch.setattr(scheduler, "CLOCK_CHECK_SECONDS", 0.01)
    wall = [time.time()]
    counted = replace(
        janitor("INSERT INTO public.runs DEFAULT VALUES RETURNING 0"), every=timedelta(hours=1)
    )
    harness.run("CREATE TABLE runs (at timestamptz DEFAULT clock_timestamp())")
    with Scheduler(harness.pool, ME, [counted], clock=lambda: wall[0] + time.monotonic()):
        until(lambda: harness.value("SELECT count(*) FROM runs") == 1, "it runs at the start")
        wall[0] -= 3600
        until(lambda: harness.value("SELECT count(*) FROM runs") == 2, "it runs again")
