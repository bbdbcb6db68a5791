"""Whatever happens to emails, and by whatever path, the rollups count what the table holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.postgres import Connect
from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

SETTLED = "status IN ('sent', 'failed', 'cancelled')"
HOUR = "date_trunc('hour', created_at, 'UTC')"

DEAD_HOUR = "date_trunc('hour', dead_at, 'UTC')"
TOOK = "greatest(date_part('epoch', sent_at - greatest(created_at, scheduled_for)), 0)"

# What became of emails. Each rollup: its columns, and what they are called in the table of the
# emails.
ROLLUPS = {
    "rollup_by_template": {"hour": HOUR, "template_type": "template_type", "status": "status"},
    "rollup_by_tenant": {"hour": HOUR, "tenant_id": "tenant_id", "status": "status"},
    "rollup_by_provider": {
        "hour": HOUR,
        "provider": "coalesce(provider, '')",
        "error_code": "coalesce(error_code, '')",
        "status": "status",
    },
    "rollup_by_retries": {
        "hour": HOUR,
        "status": "status",
        "retries": "retries",
        "within": f"CASE WHEN status = 'sent' THEN mailgres.bucket_of({TOOK}) ELSE 0 END",
    },
    "rollup_by_status": {"hour": HOUR, "status": "status"},
    "rollup_dead": {
        "hour": DEAD_HOUR,
        "tenant_id": "tenant_id",
        "error_code": "coalesce(error_code, '')",
        "dead_reason": "dead_reason",
    },
}
SECONDS = f"coalesce(sum({TOOK}) FILTER (WHERE status = 'sent'), 0)"

# What was done: the same of the log.
MADE = "claimed_at IS NOT NULL AND event IN ('sent', 'retry', 'dead', 'deferred')"
OURS = "event NOT IN ('delivered', 'bounced', 'complained', 'failed')"
TRIES = {
    "rollup_by_minute": (
        {
            "minute": "date_trunc('minute', at, 'UTC')",
            "outcome": "event",
            "provider": "coalesce(provider, '')",
        },
        OURS,
    ),
    "rollup_by_attempt": (
        {"hour": "date_trunc('hour', at, 'UTC')", "attempt": "attempt", "outcome": "event"},
        MADE,
    ),
    "rollup_by_fault": (
        {
            "hour": "date_trunc('hour', at, 'UTC')",
            "provider": "coalesce(provider, '')",
            "error_class": "coalesce(error_class, '')",
            "error_code": "coalesce(error_code, '')",
            "outcome": "event",
        },
        f"{MADE} AND event <> 'sent'",
    ),
    "tenant_activity": ({"tenant_id": "tenant_id"}, MADE),
}
COUNTS = {"rollup_by_minute": "emails", "tenant_activity": "processed"}
ACTIVITY = f"""
    SELECT tenant_id, max(claimed_at), count(*) FILTER (WHERE claimed_at = last_at)
    FROM (SELECT *, max(claimed_at) OVER (PARTITION BY tenant_id) AS last_at
          FROM email_logs WHERE {MADE}) l
    GROUP BY tenant_id ORDER BY tenant_id
"""


def cells(rows: list[Any]) -> dict[tuple[Any, ...], int]:
    return {tuple(row[:-1]): row[-1] for row in rows}


def counted(queue: Queue, rollup: str, count: str = "emails") -> dict[tuple[Any, ...], int]:
    columns = ", ".join(ROLLUPS.get(rollup) or TRIES[rollup][0])
    only = " AND status <> 'bounced'" if "status" in columns else ""
    only += " AND outcome <> 'claimed'" if "outcome" in columns else ""
    return cells(
        queue.rows(f"SELECT {columns}, {count} FROM mailgres.{rollup} WHERE {count} <> 0{only}")
    )


def truth(queue: Queue, columns: dict[str, str], table: str, where: str) -> Any:
    values = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    groups = ", ".join(columns.values())
    return cells(
        queue.rows(f"SELECT {values}, count(*) FROM {table} WHERE {where} GROUP BY {groups}")
    )


def assert_counts_are_right(queue: Queue) -> None:
    for rollup, columns in ROLLUPS.items():
        where = "status = 'failed'" if rollup == "rollup_dead" else SETTLED
        assert counted(queue, rollup) == truth(queue, columns, "email_queue", where), rollup
    seconds = queue.value(
        "SELECT coalesce(sum(seconds), 0) FROM mailgres.rollup_by_retries WHERE status = 'sent'"
    )
    expected = queue.value(f"SELECT {SECONDS} FROM email_queue")
    assert seconds == pytest.approx(expected, abs=1e-3)
    for rollup, (columns, where) in TRIES.items():
        count = COUNTS.get(rollup, "tries")
        assert counted(queue, rollup, count) == truth(queue, columns, "email_logs", where), rollup
    activity = "SELECT tenant_id, claimed_at, batch FROM mailgres.tenant_activity ORDER BY 1"
    assert queue.rows(activity) == queue.rows(ACTIVITY)


def assert_log_is_whole(queue: Queue) -> None:
    """The log of an email leads without a gap to its status; only claims are not in it."""
    for email in queue.rows("SELECT id, status FROM email_queue"):
        status = "pending"
        for entry in queue.log(email.id):
            assert entry.from_status in {status, "sending" if status == "pending" else status}
            status = entry.to_status
        assert email.status in {status, "sending" if status == "pending" else status}


@contextmanager
def refusals() -> Iterator[None]:
    """Let the queue refuse what makes no sense; any other error is one."""
    try:
        yield
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith("MG"):
            raise


# --- what can happen, each for the email at some place in the queue

Step = Callable[[Queue, Clock, int], object]


def one(statement: str) -> Step:
    """Something that is done to one email."""

    def step(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
        rows = queue.rows("SELECT id FROM email_queue ORDER BY id")
        if rows:
            queue.run(statement, rows[place % len(rows)].id)

    return step


def enqueue(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    queue.enqueue((HOLD, RESEND)[place % 2], tenant_id=f"t{place % 3}", max_retries=place % 2)


def work(outcome: str) -> Step:
    def step(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
        claimed = queue.claim(limit=1 + place % 4)
        if claimed:
            queue.begin(claimed)
            queue.finish(*(report(email, outcome, code=f"E{place % 2}") for email in claimed))

    return step


def wait(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    clock.forward((1 + place) * timedelta(minutes=11))


def switch(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    queue.use_provider((WITH_KEYS, WITHOUT_KEYS)[place % 2])


def lose(queue: Queue, clock: Clock, place: int) -> None:
    queue.claim(limit=1 + place % 3)
    clock.forward(timedelta(minutes=1))
    queue.reap()


def fold(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    queue.run("SELECT mailgres.fold(%s)", 1 + place)


STEPS: list[Step] = [
    enqueue,
    enqueue,
    *(work(outcome) for outcome in ("sent", "transient", "permanent", "ambiguous", "config")),
    wait,
    switch,
    lose,
    fold,
    one("SELECT retry_email(%s, true)"),
    one("SELECT cancel_email(%s)"),
    one("SELECT mark_email_sent(%s, 're_1')"),
    one("SELECT mark_email_sent(%s)"),
    one("SELECT mark_email_failed(%s, 'no')"),
    one("SELECT record_email_event('failed', %s)"),
    one("SELECT record_email_event('delivered', %s)"),
    *(
        one(f"UPDATE email_queue SET {assignment} WHERE id = %s")
        for assignment in (
            *("status = 'pending'", "status = 'sent'", "status = 'failed'"),
            *("status = 'cancelled'", "tenant_id = 'moved'", "template_type = 'moved'"),
            *("error_code = 'changed'", "retries = retries + 1", "next_retry_at = NULL"),
            "created_at = created_at - interval '1 hour'",
        )
    ),
    lambda queue, *_: queue.run("UPDATE email_queue SET status = 'failed' WHERE retries = 0"),
    lambda queue, *_: queue.run("UPDATE email_queue SET status = 'pending' WHERE retries = 0"),
]
HISTORIES = st.lists(
    st.tuples(st.sampled_from(range(len(STEPS))), st.integers(0, 7)), min_size=5, max_size=60
)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=HISTORIES)
def test_any_history(queue: Queue, clock: Clock, history: list[tuple[int, int]]) -> None:
    with queue.conn.transaction(force_rollback=True):
        for number, place in history:
            with refusals(), queue.conn.transaction():
                STEPS[number](queue, clock, place)
        while queue.value("SELECT mailgres.fold(7)"):
            pass
        assert_counts_are_right(queue)
        assert_log_is_whole(queue)


def settle(queue: Queue, emails: int, times: int = 1) -> None:
    for _ in range(times):
        for _ in range(emails):
            queue.enqueue()
        queue.finish(*(report(email, "sent") for email in queue.claim(limit=emails)))


def test_fold_twice_changes_nothing(queue: Queue) -> None:
    settle(queue, 3)
    assert queue.value("SELECT mailgres.fold()") > 0
    assert_counts_are_right(queue)
    assert queue.value("SELECT mailgres.fold()") == 0
    assert_counts_are_right(queue)


def test_the_time_to_delivery_corrected_by_hand(queue: Queue) -> None:
    settle(queue, 1)
    queue.run("UPDATE email_queue SET sent_at = sent_at + interval '1 minute'")
    queue.run("SELECT mailgres.fold()")
    assert_counts_are_right(queue)


def test_fold_in_bounded_steps(queue: Queue) -> None:
    settle(queue, 1, times=5)
    assert [queue.value("SELECT mailgres.fold(2)") for _ in range(4)] == [2, 2, 1, 0]
    assert_counts_are_right(queue)


def test_two_folds_at_once(committed: Queue, connect: Connect) -> None:
    """The second does not wait; what is settled meanwhile is counted by the next."""
    settle(committed, 3)
    second = Queue(connect())
    with committed.conn.transaction():
        assert committed.value("SELECT mailgres.fold()") > 0
        assert second.value("SELECT mailgres.fold()") == 0
        settle(second, 2)
    assert second.value("SELECT mailgres.fold()") > 0
    assert_counts_are_right(second)


def test_folding_while_emails_are_settled(committed: Queue, connect: Connect) -> None:
    workers = [Queue(connect()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(settle, queue, 2, times=15) for queue in workers]
        while not all(future.done() for future in busy):
            committed.run("SELECT mailgres.fold()")
        for future in busy:
            future.result()
    committed.run("SELECT mailgres.fold()")
    assert_counts_are_right(committed)
    assert committed.value("SELECT count(*) FROM mailgres.rollup_deltas") == 0
