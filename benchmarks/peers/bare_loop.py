"""Two bare loops: what projects write by hand, and the least that is possible.

    DATABASE_URL=… python bare_loop.py 10     claim 10, then one UPDATE and one commit for each
    DATABASE_URL=… python bare_loop.py 500    claim 500, then one UPDATE for all of them

They render nothing, log nothing, retry nothing. Enqueuing notifies; an idle loop listens.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import psycopg
from protocol import Peer, chunks, main

TABLE = """
    CREATE TABLE loop_queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint NOT NULL,
        recipient text, payload jsonb, status text NOT NULL DEFAULT 'pending',
        due timestamptz NOT NULL DEFAULT now());
    CREATE INDEX ON loop_queue (due, id) WHERE status = 'pending'
"""
ONE = """
    WITH added AS (
        INSERT INTO loop_queue (number, recipient, payload)
        VALUES (%s, 'user@example.com', '{"name": "Ana", "product": "Acme"}') RETURNING 1)
    SELECT pg_notify('loop_queue', '') FROM added
"""
MANY = """
    INSERT INTO loop_queue (number, recipient, payload)
    SELECT n, 'user' || n || '@example.com', '{"name": "Ana", "product": "Acme"}'
    FROM unnest(%s::bigint[]) n
"""
GROW = """
    INSERT INTO loop_queue (number, recipient, payload, status, due)
    SELECT 0, 'user' || n || '@example.com', '{"name": "Ana"}', %s, now() + %s::interval
    FROM generate_series(1, %s) n
"""
CLAIM = """
    UPDATE loop_queue SET status = 'sending'
    WHERE id = ANY (ARRAY(
        SELECT id FROM loop_queue WHERE status = 'pending' AND due <= now() ORDER BY due, id
        LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, number
"""
FINISH = "UPDATE loop_queue SET status = 'sent' WHERE id = ANY (%s)"
LEFT = "SELECT count(*) FROM loop_queue WHERE status <> 'sent' AND due <= now()"


class BareLoop(Peer):
    """A loop around one UPDATE."""

    size = int(sys.argv[1]) if len(sys.argv) > 1 else 10

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.conn = self.connect()
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    def connect(self) -> psycopg.Connection:
        """Connect; statements are prepared at the first use."""
        conn = psycopg.connect(self.url, autocommit=True)
        conn.prepare_threshold = 0
        return conn

    def setup(self) -> None:
        """Make the table."""
        self.conn.execute(TABLE, prepare=False)

    def fill(self, first: int, count: int, tenants: int) -> None:  # noqa: ARG002 - it has none
        """Enqueue in bulk."""
        for numbers in chunks(first, count):
            self.conn.execute(MANY, (list(numbers),))
        self.conn.execute("NOTIFY loop_queue")

    def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        self.conn.execute(ONE, (number,))

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        self.conn.execute(GROW, ("sent", "-1 day", sent))
        self.conn.execute(GROW, ("pending", "1 day", future))
        self.conn.execute("VACUUM ANALYZE loop_queue")

    def left(self) -> int:
        """Count."""
        return self.conn.execute(LEFT).fetchone()[0]

    def work(self) -> None:
        """Start the loop."""
        self.stopping.clear()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def stop(self) -> None:
        """Stop the loop."""
        self.stopping.set()
        self.thread.join()

    def loop(self) -> None:
        """Claim, call, finish."""
        with self.connect() as conn:
            conn.execute("LISTEN loop_queue")
            while not self.stopping.is_set():
                rows = conn.execute(CLAIM, (self.size,)).fetchall()
                for row in rows:
                    time.sleep(self.delay) if self.delay else None
                    self.called(row[1])
                    if self.size < 100:  # noqa: PLR2004 - the loop with one commit for each
                        conn.execute(FINISH, ([row[0]],))
                if rows and self.size >= 100:  # noqa: PLR2004
                    conn.execute(FINISH, ([row[0] for row in rows],))
                if not rows:
                    with contextlib.suppress(StopIteration):
                        next(conn.notifies(timeout=0.2, stop_after=1))


if __name__ == "__main__":
    main(BareLoop)
