"""Compare storage settings of a busy queue: fillfactor and autovacuum of email_queue.

    python -m benchmarks.storage [--trial]

The same life of emails (enqueue, claim, finish, 500 at a time, behind a backlog and a million sent
emails) in databases that differ in one setting, in turn. A transaction that stays open for the
first half keeps dead rows from being removed, as a long report does.
"""

from __future__ import annotations

import json
import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import claim, harness

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 500
VARIANTS = {
    "fillfactor 100, autovacuum as set": "",
    "fillfactor 90": "ALTER TABLE email_queue SET (fillfactor = 90)",
    "fillfactor 70": "ALTER TABLE email_queue SET (fillfactor = 70)",
    "autovacuum by PostgreSQL's defaults": (
        "ALTER TABLE email_queue RESET (autovacuum_vacuum_scale_factor,"
        " autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,"
        " autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor)"
    ),
}
EMAILS = json.dumps(
    [
        {
            "template_type": "welcome_user",
            "recipient_email": f"user{number}@example.com",
            "payload": {"name": "Ana", "url": "https://app.example.com/welcome"},
        }
        for number in range(BATCH)
    ]
)
FINISH = """
    SELECT count(*) FROM mailgres.finish((
        SELECT jsonb_agg(jsonb_build_object(
            'id', id, 'token', lease_token, 'outcome', 'sent', 'provider_message_id', id))
        FROM mailgres.claim('bench', %s)))
"""
SIZES = """
    SELECT pg_relation_size('email_queue') / 1024 / 1024 AS table_mb,
           pg_indexes_size('email_queue') / 1024 / 1024 AS indexes_mb,
           n_dead_tup AS dead_rows, autovacuum_count AS vacuums, n_tup_hot_upd AS hot_updates
    FROM pg_stat_user_tables WHERE relname = 'email_queue'
"""


def life(conn: psycopg.Connection) -> Callable[[], None]:
    """Enqueue a batch, claim and finish another."""

    def run() -> None:
        conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (EMAILS,))
        conn.execute(FINISH, (BATCH,))

    return run


def rates(times: list[float]) -> dict[str, Any]:
    """Return emails per second in the first half, with an old transaction, and in the second."""
    half = len(times) // 2
    return {
        "with_an_old_transaction_per_s": round(BATCH / statistics.median(times[:half])),
        "afterwards_per_s": round(BATCH / statistics.median(times[half:])),
    }


def main(*, trial: bool) -> None:
    """Run all variants in turn."""
    backlog, rounds, sent = (2, 4, 1_000) if trial else (20, 800, 1_000_000)
    with harness.server() as server, ExitStack() as stack:
        conns: dict[str, psycopg.Connection] = {}
        for number, (name, setting) in enumerate(VARIANTS.items()):
            url = harness.migrated(server, f"storage{number}")
            conns[name] = conn = stack.enter_context(harness.connect(url))
            conn.execute("SET synchronous_commit = off")
            if setting:
                conn.execute(setting)
            claim.seed(conn, sent, claim.SENT)
            for _ in range(backlog):
                conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (EMAILS,))
        lives = [life(conn) for conn in conns.values()]
        with ExitStack() as old:
            for conn in conns.values():
                report = old.enter_context(
                    psycopg.connect(conn.info.dsn, password=conn.info.password)
                )
                report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                report.execute("SELECT count(*) FROM email_queue")
            first = harness.in_turn(rounds // 2, *lives)
        second = harness.in_turn(rounds // 2, *lives)
        result: dict[str, Any] = {"trial": trial, "emails_each": rounds * BATCH}
        for name, before, after in zip(conns, first, second, strict=True):
            conns[name].row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
            sizes = conns[name].execute(SIZES).fetchone()
            result[name] = {**rates(before + after), **(sizes or {})}  # type: ignore[dict-item]
        harness.report("storage", next(iter(conns.values())), result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
