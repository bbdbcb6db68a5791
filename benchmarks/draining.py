"""A worker in a process of its own, as the benchmarks of the worker need it.

    DATABASE_URL=… python -m benchmarks.draining

It prints `ready`; for every line on its input it drains the queue and prints what it did as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.null_provider import NullProvider
from mailgres.sender import Renderer, Sender
from mailgres.worker import Worker
from mailgres.worker.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from mailgres.providers import Provider

BATCH = 500
LEASE = timedelta(minutes=1)
FROM = "Acme <hello@acme.example.com>"


def fill(conn: psycopg.Connection, count: int, priority: int = 5) -> None:
    """Enqueue thousands of emails that need a real template."""
    emails = [
        {
            "template_type": "welcome_user",
            "recipient_email": f"user{number}@example.com",
            "payload": {"name": "Ana", "product": "Acme", "url": "https://app.example.com"},
            "priority": priority,
        }
        for number in range(1000)
    ]
    for _ in range(count // 1000):
        conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (json.dumps(emails),))


def open_store(url: str, provider: Provider) -> Store:
    """The queue, with one provider that all emails go to."""
    store = Store(url, worker=f"bench-{os.getpid()}")
    store.use_providers(
        [
            {
                "name": provider.name,
                "kind": provider.kind,
                "idempotent": provider.capabilities.idempotent,
                "batch_size": provider.capabilities.batch_size,
            }
        ]
    )
    return store


def make_worker(store: Store, provider: Provider, concurrency: int = 2) -> Worker:
    """A worker with one provider."""
    return Worker(
        store,
        Sender(store, Renderer(store, FROM), {provider.name: provider}),
        lease=LEASE,
        concurrency=concurrency,
        batch_size=BATCH,
    )


class Drainer:
    """A worker process, told when to drain."""

    def __init__(
        self, url: str, command: Sequence[str] = ("benchmarks.draining",), **variables: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DATABASE_URL": url, **variables},
        )
        self._line()

    def start(self) -> None:
        """Let it drain."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def reported(self) -> dict[str, Any]:
        """What it did."""
        done: dict[str, Any] = json.loads(self._line())
        return done

    def close(self) -> None:
        """End it."""
        self.process.communicate(timeout=60)

    def _line(self) -> str:
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout.readline()


@contextmanager
def drainers(url: str, count: int) -> Iterator[list[Drainer]]:
    """Some worker processes, ready."""
    all_of_them = [Drainer(url) for _ in range(count)]
    try:
        yield all_of_them
    finally:
        for drainer in all_of_them:
            drainer.close()


def drain(workers: list[Drainer], count: int) -> tuple[float, list[dict[str, Any]]]:
    """Let all of them drain together; returns the seconds and what each did."""
    reported: list[dict[str, Any]] = []

    def all_drain() -> None:
        for worker in workers:
            worker.start()
        reported.extend(worker.reported() for worker in workers)

    seconds = harness.timed(all_drain)
    if sum(each["sent"] for each in reported) != count:
        sys.exit("not everything was drained")
    return seconds, reported


def main() -> None:
    """Drain at every line."""
    provider = NullProvider(batch_size=BATCH)
    store = open_store(os.environ["DATABASE_URL"], provider)
    print("ready", flush=True)
    for _ in sys.stdin:
        before = time.process_time()
        sent = make_worker(store, provider).drain().sent
        reported = {
            "sent": sent,
            "cpu_seconds": time.process_time() - before,
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(reported), flush=True)
    store.close()


if __name__ == "__main__":
    main()
