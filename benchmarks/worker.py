"""The worker on its own: how soon it picks up an email, and what slows it down.

    python -m benchmarks.worker [--trial]

Pick-up: a worker sleeps, an application enqueues one email and commits; the time from the commit,
as the application sees it, until the provider is called; how long each step of it took; and how
long `enqueue_email` took. Slow provider: each call takes 50 ms and 50 are made at once, which is
1,000 emails a second at best; once with idempotency keys, once without, where every call is
preceded by a `start_attempts`. Both wait for commits, so what a bare commit takes on this disk is
printed, too.
Size: the drain of 20,000 emails in an empty table against one with a million sent rows and a
million future ones.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks import claim, harness
from benchmarks.draining import LEASE, drain, drainers, fill, make_worker, open_store
from benchmarks.null_provider import NullProvider
from mailgres.providers.base import Capabilities
from mailgres.worker.claimer import Claimer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from mailgres.model import ClaimedEmail, Message, Result

ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', %s)"
PAYLOAD = '{"name": "Ana", "product": "Acme", "url": "https://app.example.com"}'
CALL_SECONDS = 0.05
CALLS_AT_ONCE = 50
ASLEEP_AFTER = 0.4
"""Seconds after which a worker that found nothing sleeps deeply."""


def clock() -> int:
    """Nanoseconds, by the clock that all processes of a machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class NotingClaimer(Claimer):
    """Remembers when the last claim that found something began and ended."""

    began = ended = 0

    def claim(self, limit: int) -> list[ClaimedEmail]:
        """Claim, and note the time."""
        began = clock()
        emails = super().claim(limit)
        if emails:
            self.began, self.ended = began, clock()
        return emails


class Noting(NullProvider):
    """Says when it is called, and when its emails were claimed."""

    claimer: NotingClaimer

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Print the times."""
        called = clock()
        print(json.dumps([self.claimer.began, self.claimer.ended, called]), flush=True)
        return super().send(messages)


class Slow(NullProvider):
    """Takes its time for every single email."""

    def __init__(self, *, idempotent: bool) -> None:
        super().__init__("null")
        self.capabilities = Capabilities(batch_size=1, idempotent=idempotent)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Wait, then accept."""
        time.sleep(CALL_SECONDS)
        return super().send(messages)


def pick_up(url: str, conn: psycopg.Connection, samples: int) -> dict[str, Any]:
    """Milliseconds between an enqueue and the call, with the worker asleep."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", "--note"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DATABASE_URL": url},
    )
    assert worker.stdout is not None  # noqa: S101
    steps: dict[str, list[float]] = {"woken": [], "claim": [], "hand over and render": []}
    times: list[float] = []
    enqueues: list[float] = []
    try:
        for number in range(samples + 5):
            time.sleep(ASLEEP_AFTER)
            seconds = harness.timed(lambda: conn.execute(ENQUEUE, (PAYLOAD,)))
            committed = clock()
            began, claimed, called = json.loads(worker.stdout.readline())
            if number >= 5:  # noqa: PLR2004 - the first ones start up and plan
                times.append((called - committed) / 1e6)
                enqueues.append(seconds)
                stamps = (committed, began, claimed, called)
                for step, start, end in zip(steps, stamps, stamps[1:], strict=False):
                    steps[step].append((end - start) / 1e6)
    finally:
        worker.communicate(timeout=60)
    ordered = sorted(times)
    return {
        "samples": len(ordered),
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 2),
        "max_ms": round(ordered[-1], 2),
        "p50_ms_by_step": {step: round(statistics.median(seen), 2) for step, seen in steps.items()},
        "enqueue": harness.milliseconds(enqueues),
        "goal": {"p50_ms": 3, "p99_ms": 10},
    }


def note() -> None:
    """Be the worker that is woken, until the input ends."""
    provider = Noting()
    store = open_store(os.environ["DATABASE_URL"], provider)
    worker = make_worker(store, provider)
    worker.claimer = provider.claimer = NotingClaimer(store, [provider.name], LEASE, 1.0)

    def stop_at_the_end() -> None:
        sys.stdin.read()
        worker.stop()

    threading.Thread(target=stop_at_the_end, daemon=True).start()
    worker.run()
    store.close()


def commit(conn: psycopg.Connection, samples: int) -> dict[str, float]:
    """What a transaction costs that writes one row: above all the disk."""
    conn.execute("CREATE TABLE a_row (number int)")
    insert = "INSERT INTO a_row VALUES (1)"
    return harness.milliseconds(
        [harness.timed(lambda: conn.execute(insert)) for _ in range(samples)]
    )


def slow_provider(url: str, conn: psycopg.Connection, count: int) -> dict[str, Any]:
    """The share of the bound that is reached when calls are slow."""
    bound = CALLS_AT_ONCE / CALL_SECONDS
    reached = {}
    for kind, idempotent in (("with_keys", True), ("without_keys", False)):
        provider = Slow(idempotent=idempotent)
        store = open_store(url, provider)
        fill(conn, count)
        worker = make_worker(store, provider, CALLS_AT_ONCE)
        rate = count / harness.timed(worker.drain)
        store.close()
        reached[kind] = {"per_s": round(rate), "ratio": round(rate / bound, 3)}
    return {"bound_per_s": bound, **reached, "goal": 0.9}


def size(server: str, rows: int, rounds: int, count: int) -> dict[str, Any]:
    """The drain in a large table against that in an empty one, in turn."""
    small, large = (harness.migrated(server, name) for name in ("small", "large"))
    with harness.connect(small) as at_small, harness.connect(large) as at_large:
        for shape in (claim.SENT, claim.TOMORROW):
            claim.seed(at_large, rows, shape)
        rates: dict[str, list[float]] = {small: [], large: []}
        with drainers(small, 1) as in_small, drainers(large, 1) as in_large:
            for _ in range(rounds):
                for url, conn, workers in (
                    (small, at_small, in_small),
                    (large, at_large, in_large),
                ):
                    fill(conn, count)
                    rates[url].append(count / drain(workers, count)[0])
    empty, full = (statistics.median(rates[url]) for url in (small, large))
    return {
        "sent_rows": rows,
        "future_rows": rows,
        "empty_per_s": round(empty),
        "full_per_s": round(full),
        "ratio": round(full / empty, 2),
        "goal": 0.85,
    }


def main(*, trial: bool) -> None:
    """Run it."""
    with harness.server() as server:
        url = harness.migrated(server, "worker")
        with harness.connect(url) as conn:
            result = {
                "trial": trial,
                "pick_up": pick_up(url, conn, 3 if trial else 300),
                "commit": commit(conn, 20 if trial else 500),
                "slow_provider": slow_provider(url, conn, 1000 if trial else 10_000),
                "size": (
                    size(server, 1000, 1, 1000) if trial else size(server, 1_000_000, 5, 20_000)
                ),
            }
            harness.report("worker", conn, result)


if __name__ == "__main__":
    if "--note" in sys.argv:
        note()
    else:
        main(trial=harness.is_trial(__doc__))
