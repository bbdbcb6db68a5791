"""Times that nobody can calculate with: `infinity`, and years beyond what programs read.

PostgreSQL stores them and raises an error for a difference or a sum that it cannot express. In a
claim, a janitor or a figure that error would concern all emails.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.queue import Clock, Queue, report

ODD = ["infinity", "-infinity", "4713-01-01 BC", "294276-12-31"]
AWAITED = {"next_retry_at", "scheduled_for", "expires_at"}
"""What an email waits for may be infinite: `infinity` means forever."""
JANITORS = [
    "promote",
    "reap",
    "expire",
    "fold_rollups",
    "archive_dead_letters",
    "delete_expired_emails",
    "measure_depth",
]
JANITORS += ["notify", "delete_expired_rollups", "delete_expired_suppressions"]
JANITORS += ["run_bulk_actions"]
VIEWS = "SELECT viewname FROM pg_views WHERE schemaname = 'public' AND viewname LIKE 'email%'"
TIMES = """
    SELECT attname AS name FROM pg_attribute
    WHERE attrelid = 'email_queue'::regclass AND attnum > 0 AND attgenerated = ''
      AND coalesce((SELECT typbasetype FROM pg_type t WHERE t.oid = atttypid AND t.typtype = 'd'),
                   atttypid) = 'timestamptz'::regtype
"""


def insert(queue: Queue, column: str, value: str) -> Any:
    query = f"""
        INSERT INTO email_queue (template_type, recipient_email, retries, {column})
        VALUES ('letter', 'odd@example.com', 1, %s) RETURNING id
    """
    return queue.value(query, value)


def claim(queue: Queue) -> list[Any]:
    """Claim without reading the times, which Python cannot hold."""
    return queue.rows("SELECT id, lease_token FROM mailgres.claim('w', 100, '2 minutes')")


def look_after(queue: Queue) -> None:
    """Do what janitors do, and read what people and alerts read."""
    for name in JANITORS:
        queue.run(f"SELECT mailgres.{name}()")
    for view in queue.rows(VIEWS):
        queue.rows(f"SELECT to_jsonb(v) FROM {view.viewname} v")


@pytest.mark.parametrize("value", ODD)
def test_a_time_that_nobody_can_calculate_with_is_refused(queue: Queue, value: str) -> None:
    queue.enqueue()
    columns = {row.name for row in queue.rows(TIMES)} - AWAITED
    assert {"created_at", "lease_until", "last_attempt_at"} <= columns
    for column in columns:
        error = psycopg.errors.CheckViolation
        with pytest.raises(error, match="years_1_to_9999") as raised, queue.conn.transaction():
            insert(queue, column, value)
        assert "odd@example.com" not in str(raised.value)
        with pytest.raises(error), queue.conn.transaction():
            queue.run(f"UPDATE email_queue SET {column} = %s", value)


@pytest.mark.parametrize("outcome", ["sent", "transient", "config", "ambiguous", "permanent"])
@pytest.mark.parametrize("value", ODD)
def test_an_email_that_waits_for_an_odd_time_is_handled_with_the_others(
    queue: Queue, clock: Clock, value: str, outcome: str
) -> None:
    for column in sorted(AWAITED):
        insert(queue, column, value)
    others = {queue.enqueue() for _ in range(3)}
    claimed = claim(queue)
    assert others <= {email.id for email in claimed}
    settled = queue.rows(
        "SELECT id, refused FROM mailgres.finish(%s)",
        Jsonb([report(email, outcome) for email in claimed]),
    )
    assert {each.refused for each in settled} == {None}
    look_after(queue)
    clock.forward(timedelta(days=400))
    look_after(queue)
    queue.run("UPDATE email_queue SET status = 'cancelled' WHERE status <> 'sent'")
    queue.run("DELETE FROM email_queue")
    look_after(queue)


@pytest.mark.usefixtures("clock")
def test_an_email_that_is_held_indefinitely_can_be_marked_as_sent(queue: Queue) -> None:
    """An application that sends inline holds the email until then."""
    queue_id = queue.enqueue(scheduled_for="infinity")
    assert claim(queue) == []
    assert queue.value("SELECT mark_email_sent(%s, 're_1')", queue_id)
    look_after(queue)
    assert queue.value("SELECT sum(emails) FROM mailgres.counted_by_status WHERE status = 'sent'")
