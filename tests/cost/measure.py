"""What an email costs PostgreSQL, in counters that noise cannot move.

Every step is one statement under EXPLAIN (ANALYZE, BUFFERS, WAL), which counts what its functions
and triggers do, too. Times are not measured. `pinned`: another session keeps a snapshot from the
start, so that no dead row and no dead index entry can be removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from support.queue import HOLD, WITHOUT_KEYS, Queue

Figures = dict[str, dict[str, float]]

EMAILS = 300
"""In a round: the first rounds fill caches and leave dead rows, the last one is measured."""
ROUNDS = 4
CLAIM = 10
TENANTS = 3
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, WAL, TIMING OFF, SUMMARY OFF, FORMAT JSON) "
HELD = "SELECT id, lease_token FROM email_queue WHERE status = 'sending' ORDER BY id"
FLUSH = "SELECT pg_stat_force_next_flush()"
INDEX_TUPLES = """
    SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'email_queue'
"""
CALLS = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions"
TRANSACTIONS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Meter:
    """Runs statements and adds up what they cost, by step."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self.conn = conn
        self.costs: dict[str, Counter[str]] = {}

    def run(self, step: str, query: str, *given: object) -> None:
        (document,) = self.conn.execute((EXPLAIN + query).encode(), given).fetchone() or ([],)
        plan = document[0]["Plan"]
        cost = self.costs.setdefault(step, Counter())
        cost["buffers"] += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        cost["wal_bytes"] += plan["WAL Bytes"]
        cost["statements"] += 1


def measure(conn: psycopg.Connection, other: psycopg.Connection, *, pinned: bool) -> Figures:
    """Return the figures of the last round, for each email."""
    queue = Queue(conn)
    queue.use_provider(WITHOUT_KEYS)
    conn.execute("ALTER TABLE email_queue SET (autovacuum_enabled = false)")
    conn.execute("SET track_functions = 'all'")
    if pinned:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM email_queue")
    for _ in range(ROUNDS - 1):
        drain(Meter(conn))
        tidy(conn)
    meter = Meter(conn)
    with counted(conn) as totals:
        drain(meter)
    figures: Figures = {step: dict(cost) for step, cost in meter.costs.items()}
    figures["all"] = totals
    return {
        step: {name: round(value / EMAILS, 3) for name, value in cost.items()}
        for step, cost in figures.items()
    }


def tidy(conn: psycopg.Connection) -> None:
    """What autovacuum does, at a fixed moment: it removes nothing while a snapshot is pinned."""
    conn.execute("VACUUM email_queue")


@contextmanager
def counted(conn: psycopg.Connection) -> Iterator[dict[str, float]]:
    """Count what the whole round does in the database."""
    totals: dict[str, float] = {}
    queries = {"index_tuples": INDEX_TUPLES, "function_calls": CALLS, "transactions": TRANSACTIONS}

    def look() -> dict[str, int]:
        conn.execute(FLUSH)
        return {name: value(conn, query) for name, query in queries.items()}

    before = look()
    yield totals
    totals |= {name: count - before[name] for name, count in look().items()}


def drain(meter: Meter) -> None:
    """Enqueue a round of emails, half of them one by one, and send all of them."""
    emails = [mail(n) for n in range(EMAILS // 2)]
    meter.run("enqueue_emails", "SELECT count(*) FROM enqueue_emails(%s)", Jsonb(emails))
    for n in range(EMAILS // 2):
        meter.run("enqueue_email", ENQUEUE, HOLD, f"one{n}@example.com", f"t{n % TENANTS}")
    done = 0
    while done < EMAILS:
        meter.run("claim", "SELECT * FROM mailgres.claim('w', %s, '1 hour')", CLAIM)
        held: list[tuple[UUID, UUID]] = meter.conn.execute(HELD).fetchall()
        assert held
        done += len(held)
        ids = [queue_id for queue_id, _ in held]
        meter.run("start", "SELECT * FROM mailgres.start_attempts(%s, %s)", held[0][1], ids)
        outcomes = Jsonb([sent(*one) for one in held])
        meter.run("finish", "SELECT * FROM mailgres.finish(%s)", outcomes)


ENQUEUE = "SELECT enqueue_email(NULL, %s, %s, '{}', p_tenant_id => %s)"


def mail(number: int) -> dict[str, Any]:
    tenant = f"t{number % TENANTS}"
    return {"template_type": HOLD, "recipient_email": f"m{number}@example.com", "tenant_id": tenant}


def sent(queue_id: UUID, token: UUID) -> dict[str, str]:
    return {
        "id": str(queue_id),
        "token": str(token),
        "outcome": "sent",
        "provider_message_id": f"message-{queue_id}",
    }


def value(conn: psycopg.Connection, query: str) -> int:
    (found,) = conn.execute(query.encode()).fetchone() or (0,)
    return int(found)


def grown(figures: Figures, accepted: Figures, most: float) -> list[str]:
    """Say what costs more than it did, beyond a share of it."""
    return [
        f"{step}: {name} per email grew from {before:g} to {now:g} ({now / before:.2f} times)"
        for step, costs in figures.items()
        for name, now in costs.items()
        if (before := accepted.get(step, {}).get(name, 0.0)) and now > before * (1 + most)
    ]
