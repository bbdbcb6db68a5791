"""mailgres with a provider that accepts everything.

Claims of 500 and batches of 500; a real template is rendered, every attempt is logged, counts
are kept. If calls take time they are made one by one, twenty at once, as by a provider without
batches; the lease is 10 seconds then, and the janitor that takes back expired leases runs every
second.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from protocol import Peer, chunks, main, payload

from benchmarks import claim, harness
from benchmarks.draining import FROM, open_store
from benchmarks.null_provider import NullProvider
from mailgres import migrate
from mailgres.sender import Renderer, Sender
from mailgres.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Message, Result

ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', %s)"
LEFT = "SELECT count(*) FROM email_queue WHERE status IN ('pending', 'sending') AND ready"
BATCH = 500
AT_ONCE = 20
"""Calls at once, if they take time."""
SHORT_LEASE = timedelta(seconds=10)


class Noting(NullProvider):
    """Notes each email."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(batch_size=1 if peer.delay else BATCH)
        self.peer = peer

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Accept all of them."""
        if self.peer.delay:
            time.sleep(self.peer.delay)
        for message in messages:
            number = json.loads(message.email.payload)["number"]
            self.peer.called(number, message.email.key)
        return super().send(messages)


class Mailgres(Peer):
    """The queue."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.conn = harness.connect(url)
        self.worker: Worker | None = None
        self.thread: threading.Thread | None = None
        self.counting = threading.Lock()

    def called(self, number: int, key: str = "-") -> None:
        """Note a call; several threads send."""
        with self.counting:
            super().called(number, key)

    def setup(self) -> None:
        """Migrate."""
        migrate.upgrade(self.url)

    def fill(self, first: int, count: int, tenants: int) -> None:
        """Enqueue with enqueue_emails."""
        for numbers in chunks(first, count):
            emails = [
                {
                    "template_type": "welcome_user",
                    "recipient_email": f"user{number}@example.com",
                    "payload": payload(number),
                    **({"tenant_id": f"tenant-{number % tenants}"} if tenants else {}),
                }
                for number in numbers
            ]
            self.conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (json.dumps(emails),))

    def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        self.conn.execute(ENQUEUE, (json.dumps(payload(number)),))

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        claim.seed(self.conn, sent, claim.SENT)
        claim.seed(self.conn, future, claim.TOMORROW)

    def left(self) -> int:
        """Count."""
        with harness.connect(self.url) as conn:
            row = conn.execute(LEFT).fetchone()
        return int(row[0])

    def work(self) -> None:
        """Start a worker."""
        provider = Noting(self)
        self.store = open_store(self.url, provider)
        self.worker = Worker(
            self.store,
            Sender(self.store, Renderer(self.store, FROM), {provider.name: provider}),
            lease=SHORT_LEASE if self.delay else timedelta(minutes=1),
            concurrency=AT_ONCE if self.delay else 2,
            batch_size=AT_ONCE if self.delay else BATCH,
        )
        self.thread = threading.Thread(target=self.worker.run)
        self.thread.start()
        if self.delay:
            threading.Thread(target=self.reap, args=(self.worker,), daemon=True).start()

    def reap(self, worker: Worker) -> None:
        """Take back expired leases every second, as the janitor does."""
        while not worker.stopping.wait(1):
            try:
                with harness.connect(self.url) as conn:
                    conn.execute("SELECT mailgres.reap()")
            except psycopg.Error:
                continue

    def stop(self) -> None:
        """Stop it."""
        self.worker.stop()
        self.thread.join()
        self.store.close()


if __name__ == "__main__":
    main(Mailgres)
