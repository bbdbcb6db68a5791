"""What the tests of the janitors share: emails in the states that janitors handle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import ConnectionPool

from mailgres.janitor import JANITORS, Done, Janitor, WorkerInfo, run
from support.queue import Clock, Queue

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
ME = WorkerInfo("worker-1", "1.2.3", lambda: {"concurrency": 10})

# With two entries in the log each, as an email has that was retried once.
PUT = """
    WITH put AS (
        INSERT INTO email_queue
            (template_type, recipient_email, status, sent_at, dead_at, dead_reason, error_message,
             next_retry_at, ready)
        SELECT 'welcome_user', 'ana@example.com', s.status,
               CASE s.status WHEN 'sent' THEN mailgres.now() END,
               CASE s.status WHEN 'failed' THEN mailgres.now() END,
               CASE s.status WHEN 'failed' THEN 'permanent' END,
               CASE s.status WHEN 'failed' THEN 'no such mailbox' END,
               mailgres.now() + interval '1000 days', false
        FROM (VALUES (%s)) s(status), generate_series(1, %s) n
        RETURNING id, status
    ), logged AS (
        INSERT INTO email_logs (queue_id, event, to_status, tenant_id, template_type)
        SELECT put.id, e.event, e.to_status, 'default', 'welcome_user'
        FROM put,
             LATERAL (VALUES ('retry', 'pending'), ('end', put.status::text)) e(event, to_status)
    )
    SELECT id FROM put ORDER BY id
"""


def put(queue: Queue, status: str, count: int = 1) -> list[UUID]:
    """Put emails into the queue that have been in a status since now."""
    return [row.id for row in queue.rows(PUT, status, count)]


def ids(queue: Queue) -> set[UUID]:
    """The emails in the queue."""
    return {row.id for row in queue.rows("SELECT id FROM email_queue")}


def archived(queue: Queue) -> set[UUID]:
    """The emails in the archive."""
    return {row.queue_id for row in queue.rows("SELECT queue_id FROM mailgres.dead_letters")}


class JanitorHarness(Queue):
    """A queue whose janitors run over a pool of connections."""

    def __init__(
        self, conn: psycopg.Connection, url: str, pool: ConnectionPool[psycopg.Connection[Any]]
    ) -> None:
        super().__init__(conn)
        self.url = url
        self.pool = pool
        self.clock = Clock(conn)

    def clean(self, name: str, *, chunk: int | None = None) -> Done:
        """Run a janitor once."""
        return self.run_janitor(replace(JANITORS[name], chunk=chunk or JANITORS[name].chunk))

    def run_janitor(self, janitor: Janitor) -> Done:
        """Run a janitor of the test's own."""
        return run(janitor, self.pool.connection, ME)

    def locks(self) -> int:
        """Return how many advisory locks are held in this database."""
        count: int = self.value(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return count
