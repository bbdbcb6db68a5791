"""Workers are seen while they live and forgotten after a day."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from janitor.harness import DAY, SECOND
from support.queue import Clock, Queue

HEARTBEAT = "SELECT mailgres.heartbeat(%s, %s, %s)"
FORGET = "SELECT mailgres.delete_stale_workers()"


def names(queue: Queue, table: str = "workers") -> list[str]:
    return [row.worker for row in queue.rows(f"SELECT worker FROM mailgres.{table} ORDER BY 1")]


def test_a_heartbeat_records_version_and_details(queue: Queue, clock: Clock) -> None:
    start = clock.now
    assert queue.value(HEARTBEAT, "w", "1.0", Jsonb({"concurrency": 10})) == 1
    clock.forward(10 * SECOND)
    assert queue.value(HEARTBEAT, "w", "1.1", Jsonb({"concurrency": 20})) == 1
    row = queue.row("SELECT * FROM mailgres.workers")
    assert (row.started_at, row.seen_at) == (start, clock.now)
    assert (row.version, row.details) == ("1.1", {"concurrency": 20})


def test_a_heartbeat_needs_only_the_name_of_the_worker(queue: Queue) -> None:
    assert queue.value("SELECT mailgres.heartbeat('w')") == 1
    assert queue.value(HEARTBEAT, "w", None, None) == 1
    row = queue.row("SELECT * FROM mailgres.workers")
    assert (row.version, row.details) == ("", {})


@pytest.mark.parametrize("name", ["", "w" * 201])
def test_bad_names_of_workers_are_refused(queue: Queue, name: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        queue.run(HEARTBEAT, name, "", Jsonb({}))


def test_workers_that_are_gone_are_deleted(queue: Queue, clock: Clock) -> None:
    queue.run("SELECT mailgres.heartbeat('dead')")
    clock.forward(SECOND)
    queue.run("SELECT mailgres.heartbeat('alive')")
    clock.forward(DAY - SECOND)
    assert queue.value(FORGET) == 1
    assert names(queue) == ["alive"]
    assert queue.value(FORGET) == 0


def test_stale_entries_of_sleeping_workers_are_deleted(queue: Queue) -> None:
    queue.run(
        "INSERT INTO mailgres.sleepers SELECT w, clock_timestamp() - a FROM (VALUES"
        " ('gone', interval '1 hour'), ('late', interval '59 minutes'),"
        " ('asleep', interval '-1 minute')) s(w, a)"
    )
    assert queue.value(FORGET) == 1
    assert names(queue, "sleepers") == ["asleep", "late"]


def test_stale_workers_are_deleted_in_bounded_steps(queue: Queue, clock: Clock) -> None:
    for number in range(25):
        queue.run("SELECT mailgres.heartbeat(%s)", f"w{number}")
    queue.run(
        "INSERT INTO mailgres.sleepers SELECT n, clock_timestamp() - interval '2 hours'"
        " FROM generate_series(1, 10) n"
    )
    clock.forward(2 * DAY)
    query = "SELECT mailgres.delete_stale_workers(10)"
    assert [queue.value(query) for _ in range(5)] == [10, 10, 10, 5, 0]
    assert names(queue) == names(queue, "sleepers") == []
