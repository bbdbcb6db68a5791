"""A bulk retry while two workers drain: nothing is lost or doubled, no transaction is long.

BULK_ROWS=100000 makes it the size at which it was measured.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from doubles import resend as resend_double
from doubles.remote import RemoteDouble
from doubles.resend import KEY
from support.postgres import Connect
from support.queue import HOLD
from worker.harness import WorkerHarness, until

COUNT = int(os.environ.get("BULK_ROWS", "3000"))
UNCERTAIN = COUNT // 50
CHUNK = 200
FILL = """
    INSERT INTO email_queue (template_type, recipient_email, status, dead_at, dead_reason,
                             error_message, tenant_id, provider, uncertain_since)
    SELECT %s, 'user' || n || '@example.com', 'failed', now(),
           CASE WHEN n %% 50 = 0 THEN 'uncertain' ELSE 'exhausted' END, 'busy', 'tenant-' || n %% 7,
           'resend', CASE WHEN n %% 50 = 0 THEN now() - interval '2 days' END
    FROM generate_series(1, %s) n
"""
# A transaction of one of the jobs, and how long it has been open.
TRANSACTIONS = """
    SELECT a.pid, a.xact_start, clock_timestamp() - a.xact_start AS age
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.query LIKE '%retry_emails%'
      AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid()
"""
CHUNKS = """
    SELECT at, count(*) AS emails FROM email_logs
    WHERE event = 'reopened' GROUP BY at, xmin
"""


class Watcher(threading.Thread):
    """Looks at the transactions of the jobs again and again."""

    def __init__(self, conn: psycopg.Connection) -> None:
        super().__init__(daemon=True)
        self._conn, self.done = conn, threading.Event()
        self.seen: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        while not self.done.wait(0.01):
            for pid, start, age in self._conn.execute(TRANSACTIONS):
                self.seen[pid, str(start)] = age.total_seconds()


@pytest.fixture
def double() -> Iterator[RemoteDouble]:
    """Resend, in a process of its own."""
    with resend_double.in_a_process(rate=100_000) as double:
        yield double


@pytest.fixture
def harness(
    conn: psycopg.Connection, database_url: str, tmp_path: Path, double: RemoteDouble
) -> WorkerHarness:
    """A queue of dead emails."""
    harness = WorkerHarness(conn, database_url, tmp_path)
    harness.variables = {
        "MAILGRES_PROVIDERS": "resend",
        "MAILGRES_FROM_EMAIL": "Shop <noreply@example.com>",
        "MAILGRES_RESEND_API_KEY": KEY,
        "MAILGRES_RESEND_API_URL": double.url,
        "MAILGRES_BATCH_SIZE": "100",
    }
    harness.run(FILL, HOLD, COUNT)
    return harness


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_nothing_doubled(
    harness: WorkerHarness, double: RemoteDouble, connect: Connect
) -> None:
    dead = {str(row.id) for row in harness.rows("SELECT id FROM email_queue")}
    watcher = Watcher(connect())
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(harness.script("worker", "--log-level", "warning"))
        watcher.start()
        # Twice at once, as two people on call would.
        order = ("retry", "--all-failed", "--yes", "--json")
        jobs = [stack.enter_context(harness.script(*order)) for _ in range(2)]
        said = [job.popen.communicate(timeout=1500)[0] for job in jobs]
        watcher.done.set()
        watcher.join()
        reports = [json.loads(text) for text in said]
        until(
            lambda: harness.statuses() == {"sent": COUNT - UNCERTAIN, "failed": UNCERTAIN},
            "all that was retried is sent",
            1500,
        )
    assert sum(report["retried"] for report in reports) == COUNT - UNCERTAIN, "each by one of them"
    held = {
        str(row.id) for row in harness.rows("SELECT id FROM email_queue WHERE status = 'failed'")
    }
    accepted = [each["mailgres_id"] for each in double.accepted()]
    assert len(accepted) == len(set(accepted)), "nothing arrived twice"
    assert set(accepted) == dead - held, "nothing is lost"

    chunks = [row.emails for row in harness.rows(CHUNKS)]
    assert max(chunks) <= CHUNK
    assert len(chunks) >= (COUNT - UNCERTAIN) / CHUNK, "a transaction for each chunk"
    assert len(watcher.seen) > 1
    logging.getLogger(__name__).warning(
        "%d emails in %d chunks, the longest transaction %.3f s",
        *(COUNT, len(chunks), max(watcher.seen.values())),
    )
