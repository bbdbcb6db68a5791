"""The claim at growing tables against the claim at a small one.

    python -m benchmarks.claim [--trial]

(a) 1,000 ready rows; (b) 2 million ready in 10,000 tenants, one holding half; (c) plus 1 million
sent; (d) plus 1 million scheduled for tomorrow, urgent, over 5,000 tenants. A claim at (a) and one
at the large table are timed in turn, each in its own transaction. Emails claimed at (a) are given
back between the samples.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks import harness

if TYPE_CHECKING:
    import psycopg

SEED = """
    INSERT INTO email_queue
        (tenant_id, template_type, recipient_email, payload, status, ready, priority,
         next_retry_at, sent_at)
    SELECT {tenant}, 'welcome_user', 'user' || i || '@example.com',
           '{{"name": "Ana", "url": "https://app.example.com/welcome"}}', '{status}',
           {ready}, {priority}, {due}, {sent_at}
    FROM generate_series(1, {rows}) i
"""
READY = {
    "status": "pending",
    "ready": "true",
    "priority": 5,
    "due": "now() - interval '1 hour' + i * interval '1 ms'",
    "sent_at": "NULL",
}
SMALL = {**READY, "tenant": "'t' || i % 100"}
BACKLOG = {
    **READY,
    "tenant": "CASE WHEN i % 2 = 0 THEN 'big' ELSE 't' || i / 2 % 9999 END",
}
SENT = {
    **READY,
    "tenant": "'t' || i % 10000",
    "status": "sent",
    "ready": "false",
    "sent_at": "now()",
}
TOMORROW = {
    **READY,
    "tenant": "'t' || i % 5000",
    "ready": "false",
    "priority": 1,
    "due": "now() + interval '1 day'",
}


WARM_UP = 5
"""Warm-up claims, which plan the statements and are not counted."""


def seed(conn: psycopg.Connection, rows: int, shape: dict[str, Any]) -> None:
    """Fill the queue quickly: without triggers, which would log and count every row."""
    conn.execute("SET session_replication_role = replica")
    conn.execute(SEED.format(rows=rows, **shape))
    conn.execute("RESET session_replication_role")
    conn.execute("VACUUM (ANALYZE) email_queue")


def claim(conn: psycopg.Connection, limit: int) -> None:
    """Make one claim."""
    conn.execute("SELECT count(*) FROM mailgres.claim('bench', %s)", (limit,)).fetchone()


def put_back(conn: psycopg.Connection) -> None:
    """Give back everything that is claimed."""
    conn.execute(
        "SELECT count(*) FROM (SELECT mailgres.give_back(lease_token, array_agg(id))"
        " FROM email_queue WHERE status = 'sending' GROUP BY lease_token) x"
    )


def compare(
    small: psycopg.Connection, large: psycopg.Connection, limit: int, rounds: int
) -> dict[str, Any]:
    """Compare claims of one size at both tables, in turn."""
    at_small: list[float] = []
    at_large: list[float] = []
    for sample in range(rounds + WARM_UP):
        # Measure the claim, not the disk: a claim commits to disk whatever the setting.
        with small.transaction(), large.transaction():
            times = harness.in_turn(1, lambda: claim(small, limit), lambda: claim(large, limit))
        if sample >= WARM_UP:
            at_small += times[0]
            at_large += times[1]
        put_back(small)
    return {
        "small": harness.milliseconds(at_small),
        "large": harness.milliseconds(at_large),
        "ratio": round(statistics.median(at_large) / statistics.median(at_small), 2),
        "goal": 2,
    }


def main(*, trial: bool) -> None:
    """Grow the table step by step and compare at each."""
    million, rounds = (1_000, 3) if trial else (1_000_000, 100)
    steps = [
        ("b: 2 million ready, 10,000 tenants, one holding half", 2 * million, BACKLOG),
        ("c: plus 1 million sent", million, SENT),
        ("d: plus 1 million urgent for tomorrow, 5,000 tenants", million, TOMORROW),
    ]
    with (
        harness.server() as server,
        harness.connect(harness.migrated(server, "small")) as small,
        harness.connect(harness.migrated(server, "large")) as large,
    ):
        seed(small, 1_000, SMALL)
        result: dict[str, Any] = {"trial": trial, "small_is": "a: 1,000 ready rows, 100 tenants"}
        for name, rows, shape in steps:
            seed(large, rows, shape)
            result[name] = {
                f"claim of {limit}": compare(small, large, limit, rounds) for limit in (10, 100)
            }
        harness.report("claim", large, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
