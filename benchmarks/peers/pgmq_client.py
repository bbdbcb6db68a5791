"""pgmq with its Python client; the schema comes from the SQL file in the client's package.

Settings, from its docs: `send_batch` for thousands; `read_with_poll` of 500 messages, then one
`delete_batch`, polling every 10 ms (the default is 100). For the measure of fairness each
message names its tenant in the header `x-pgmq-group`, and `read_grouped_rr` takes turns. A
finished message is deleted.
"""

from __future__ import annotations

import logging
import threading
import time

import psycopg
from pgmq import PGMQueue
from pgmq.install import get_embedded_install_sql, install_pgmq_sql
from protocol import Peer, chunks, main, payload

QUEUE = "email"
GROW = {
    "a": """INSERT INTO pgmq.a_email (msg_id, enqueued_at, vt, message)
            SELECT -n, now(), now(), '{"number": 0}' FROM generate_series(1, %s) n""",
    "q": """INSERT INTO pgmq.q_email (vt, message)
            SELECT now() + interval '1 day', '{"number": 0}' FROM generate_series(1, %s)""",
}
LEFT = "SELECT count(*) FROM pgmq.q_email WHERE vt < now() + interval '12 hours'"


class Pgmq(Peer):
    """The queue."""

    vt = 30

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.queue = PGMQueue(conn_string=url, init_extension=False)
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    def setup(self) -> None:
        """Install the SQL of the extension."""
        install_pgmq_sql(get_embedded_install_sql(), dsn=self.url)
        self.queue.create_queue(QUEUE)

    def fill(self, first: int, count: int, tenants: int) -> None:
        """Enqueue with send_batch."""
        if tenants:
            self.queue.create_fifo_index(QUEUE)
        for numbers in chunks(first, count):
            headers = [{"x-pgmq-group": str(n % tenants)} for n in numbers] if tenants else None
            self.queue.send_batch(QUEUE, [payload(n) for n in numbers], headers)

    def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        self.queue.send(QUEUE, payload(number))

    def grow(self, sent: int, future: int) -> None:
        """Add rows; sent ones are archived."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(GROW["a"], (sent,))
            conn.execute(GROW["q"], (future,))
            conn.execute("VACUUM ANALYZE pgmq.q_email")

    def left(self) -> int:
        """Count."""
        with psycopg.connect(self.url) as conn:
            return conn.execute(LEFT).fetchone()[0]

    def work(self) -> None:
        """Start a loop."""
        self.stopping.clear()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def stop(self) -> None:
        """Stop it."""
        self.stopping.set()
        self.thread.join()

    def loop(self) -> None:
        """Read, call, delete; wait for the server after a failure."""
        while not self.stopping.is_set():
            try:
                self.take()
            except psycopg.Error:
                time.sleep(0.5)

    def take(self) -> None:
        """Handle one batch."""
        size = 20 if self.delay else 500
        if self.tenants:
            messages = self.queue.read_grouped_rr(QUEUE, vt=self.vt, qty=size)
            time.sleep(0 if messages else 0.01)
        else:
            messages = self.queue.read_with_poll(
                QUEUE, vt=self.vt, qty=size, max_poll_seconds=1, poll_interval_ms=10
            )
        if messages and self.delay:
            time.sleep(self.delay)  # they are sent at the same time
        for message in messages:
            self.called(message.message["number"])
        if messages:
            self.queue.delete_batch(QUEUE, [message.msg_id for message in messages])


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(Pgmq)
