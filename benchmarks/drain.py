"""Draining the queue against the loop that projects write by hand.

    python -m benchmarks.drain [--trial]

Ours: one worker process, the provider `null`, a real template rendered, logs and rollups written,
claims of 500. The loop: claim 10 rows with SKIP LOCKED, then one UPDATE and one commit for each; it
renders nothing and logs nothing. Both drain the same number of rows, in turn.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from mailgres.providers.null import NullProvider
from mailgres.sender import Renderer, Sender
from mailgres.store import Store
from mailgres.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from mailgres.providers import Provider

LOOP_TABLE = """
    CREATE TABLE loop_queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        recipient text, payload jsonb, status text NOT NULL DEFAULT 'pending');
    CREATE INDEX ON loop_queue (id) WHERE status = 'pending';
"""
LOOP_CLAIM = """
    UPDATE loop_queue SET status = 'sending'
    WHERE id = ANY (ARRAY(
        SELECT id FROM loop_queue WHERE status = 'pending' ORDER BY id LIMIT 10
        FOR UPDATE SKIP LOCKED))
    RETURNING id
"""
BATCH = 500


def fill(conn: psycopg.Connection, count: int) -> None:
    """Enqueue the same emails for both."""
    emails = [
        {
            "template_type": "welcome_user",
            "recipient_email": f"user{number}@example.com",
            "payload": {"name": "Ana", "product": "Acme", "url": "https://app.example.com"},
        }
        for number in range(1000)
    ]
    for _ in range(count // 1000):
        conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (json.dumps(emails),))
    conn.execute(
        "INSERT INTO loop_queue (recipient, payload)"
        " SELECT 'user' || i || '@example.com', '{\"name\": \"Ana\"}'"
        " FROM generate_series(1, %s) i",
        (count,),
    )


def loop(conn: psycopg.Connection) -> int:
    """The loop: returns how many it did."""
    done = 0
    while rows := conn.execute(LOOP_CLAIM).fetchall():
        for row in rows:
            conn.execute("UPDATE loop_queue SET status = 'sent' WHERE id = %s", row)
        done += len(rows)
    return done


def worker(store: Store) -> int:
    """Our worker: returns how many it sent."""
    providers: dict[str, Provider] = {"null": NullProvider(batch_size=BATCH)}
    sender = Sender(store, Renderer(store, "Acme <hello@acme.example.com>"), providers)
    run = Worker(store, sender, lease=timedelta(minutes=1), concurrency=2, batch_size=BATCH)
    return run.drain().sent


def compare(url: str, conn: psycopg.Connection, rounds: int, count: int) -> dict[str, Any]:
    """Drain by turns."""
    store = Store(url, worker="bench")
    store.use_providers([{"name": "null", "kind": "null", "idempotent": True, "batch_size": BATCH}])
    ours: list[float] = []
    theirs: list[float] = []
    drains: list[tuple[list[float], Callable[[], int]]] = [
        (ours, lambda: worker(store)),
        (theirs, lambda: loop(conn)),
    ]
    try:
        for _ in range(rounds):
            fill(conn, count)
            for seen, drain in drains:
                start = time.perf_counter()
                if drain() != count:
                    sys.exit("not everything was drained")
                seen.append(time.perf_counter() - start)
    finally:
        store.close()
    return {
        "emails_each": rounds * count,
        "mailgres_per_s": round(rounds * count / sum(ours)),
        "loop_per_s": round(rounds * count / sum(theirs)),
        "ratio": round(sum(theirs) / sum(ours), 2),
        "goal": 3,
        "us_per_email": round(sum(ours) / (rounds * count) * 1e6, 1),
        "worker_peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main(*, trial: bool) -> None:
    """Run it."""
    rounds, count = (1, 1000) if trial else (4, 5000)
    with harness.server() as server:
        url = harness.migrated(server, "drain")
        with harness.connect(url) as conn:
            conn.execute(LOOP_TABLE, prepare=False)
            result = {"trial": trial, "null_provider": compare(url, conn, rounds, count)}
            harness.report("drain", conn, result)


if __name__ == "__main__":
    main(trial="--trial" in sys.argv)
