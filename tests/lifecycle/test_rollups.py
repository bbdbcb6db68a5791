"""Whatever happens to emails, and by whatever path, the rollups count what the table holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from support.histories import STEPS, History, histories, live
from support.postgres import Connect
from support.queue import Clock, Queue, report

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
TRIES = {
    "rollup_by_minute": (
        {
            "minute": "date_trunc('minute', at, 'UTC')",
            "outcome": "event",
            "provider": "coalesce(provider, '')",
        },
        "true",
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
    only = " AND outcome <> 'claimed'" if "outcome" in columns else ""
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
        count = COUNTS.get(rollup, "attempts")
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


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories(STEPS))
def test_rollups_are_right_after_any_history(queue: Queue, clock: Clock, history: History) -> None:
    with queue.conn.transaction(force_rollback=True):
        live(queue, clock, STEPS, history)
        while queue.value("SELECT mailgres.fold_rollups(7)"):
            pass
        assert_counts_are_right(queue)
        assert_log_is_whole(queue)


def settle(queue: Queue, emails: int, times: int = 1) -> None:
    for _ in range(times):
        for _ in range(emails):
            queue.enqueue()
        queue.finish(*(report(email, "sent") for email in queue.claim(limit=emails)))


def test_folding_twice_changes_nothing(queue: Queue) -> None:
    settle(queue, 3)
    assert queue.value("SELECT mailgres.fold_rollups()") > 0
    assert_counts_are_right(queue)
    assert queue.value("SELECT mailgres.fold_rollups()") == 0
    assert_counts_are_right(queue)


def test_rollups_are_right_after_sent_at_was_corrected_by_hand(queue: Queue) -> None:
    settle(queue, 1)
    queue.run("UPDATE email_queue SET sent_at = sent_at + interval '1 minute'")
    queue.run("SELECT mailgres.fold_rollups()")
    assert_counts_are_right(queue)


def test_folding_works_in_bounded_steps(queue: Queue) -> None:
    settle(queue, 1, times=5)
    assert [queue.value("SELECT mailgres.fold_rollups(2)") for _ in range(4)] == [2, 2, 1, 0]
    assert_counts_are_right(queue)


def test_two_folds_at_once_count_everything_once(committed: Queue, connect: Connect) -> None:
    """The second does not wait; what is settled meanwhile is counted by the next."""
    settle(committed, 3)
    second = Queue(connect())
    with committed.conn.transaction():
        assert committed.value("SELECT mailgres.fold_rollups()") > 0
        assert second.value("SELECT mailgres.fold_rollups()") == 0
        settle(second, 2)
    assert second.value("SELECT mailgres.fold_rollups()") > 0
    assert_counts_are_right(second)


def test_rollups_are_right_when_folded_while_emails_are_settled(
    committed: Queue, connect: Connect
) -> None:
    workers = [Queue(connect()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(settle, queue, 2, times=15) for queue in workers]
        while not all(future.done() for future in busy):
            committed.run("SELECT mailgres.fold_rollups()")
        for future in busy:
            future.result()
    committed.run("SELECT mailgres.fold_rollups()")
    assert_counts_are_right(committed)
    assert committed.value("SELECT count(*) FROM mailgres.rollup_deltas") == 0
