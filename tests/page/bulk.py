"""Many dead letters, and a gate: bulk actions of any process get no further than this."""

from __future__ import annotations

from typing import Any

from support.queue import Queue

FILL = """
    INSERT INTO email_queue (template_type, recipient_email, subject, text, status, dead_at,
                             dead_reason, error_code, error_message)
    SELECT 'inline', 'user' || n || '@example.com', 'Hi', 'Hello', 'failed', mailgres.now(),
           'exhausted', 'busy', 'too busy'
    FROM generate_series(1, %s) n
"""
# What a chunk meets is a fault that passes, so its transaction is rolled back and tried again.
GATE = """
    CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.done > {most} THEN
            RAISE lock_not_available;
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER gate BEFORE UPDATE ON mailgres.bulk_actions FOR EACH ROW EXECUTE FUNCTION gate();
"""
CHANGES = """
    SELECT count(*) AS changes, count(DISTINCT queue_id) AS emails, min(role) AS role
    FROM email_logs WHERE event = %s
"""


def fill(queue: Queue, count: int) -> None:
    """Let there be dead letters."""
    queue.run(FILL, count)


def close_gate(queue: Queue, most: int) -> None:
    """Let no bulk action get further than a number of emails."""
    queue.run(GATE.format(most=most))


def open_gate(queue: Queue) -> None:
    queue.run("DROP TRIGGER gate ON mailgres.bulk_actions")


def start(queue: Queue, action: str = "retry", given: str = "{}", options: str = "{}") -> int:
    found: int = queue.value(
        "SELECT mailgres.start_bulk_action(%s, %s, %s)", action, given, options
    )
    return found


def stopped(queue: Queue) -> None:
    """Let there be a bulk action with something of everything that is shown."""
    with queue.conn.transaction():
        start(queue)
        queue.run("""
            UPDATE mailgres.bulk_actions SET error = 'it failed', refused =
                '{"the address is suppressed": {"code": "MG028", "hint": "Wait.", "emails": 1}}'
        """)
        queue.run("SELECT mailgres.stop_bulk_action(1)")


def chunk(queue: Queue, size: int = 200) -> int:
    found: int = queue.value("SELECT mailgres.run_bulk_actions(%s)", size)
    return found


def finish(queue: Queue, size: int = 200) -> None:
    """Do chunks until nothing is running."""
    for _ in range(1000):
        chunk(queue, size)
        if not queue.value("SELECT count(*) FROM mailgres.bulk_actions WHERE state = 'running'"):
            return
    raise AssertionError("a bulk action does not end")


def action(queue: Queue, number: int = 1) -> Any:
    return queue.row("SELECT * FROM mailgres.bulk_actions WHERE id = %s", number)


def changes(queue: Queue, event: str = "reopened") -> Any:
    """How often emails were changed, how many, and who did it."""
    return queue.row(CHANGES, event)
