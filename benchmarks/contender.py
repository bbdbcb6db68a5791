"""One queue of the scorecard in one database: a producer, up to two workers, and drains of it."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from benchmarks import meters
from benchmarks.peer_process import PeerProcess, clock, wait_until_done

if TYPE_CHECKING:
    from benchmarks.meters import Cost, Meter
    from benchmarks.roster import Entry

SETTLE_SECONDS = 0.3
"""Seconds that a started worker gets to connect and to find the queue empty."""


@dataclass(frozen=True)
class Drained:
    """One drain: from its start to the last call, and what it cost until all was written."""

    emails: int
    seconds: float
    cost: Cost

    @property
    def per_s(self) -> int:
        """The rate."""
        return round(self.emails / max(self.seconds, 1e-6))

    @property
    def us(self) -> tuple[float, float]:
        """CPU microseconds per email: of the client, of the server."""
        return (self.cost.client / self.emails * 1e6, self.cost.server / self.emails * 1e6)

    @property
    def wal(self) -> float:
        """Bytes of WAL per email."""
        return self.cost.wal / self.emails


@dataclass
class Contender:
    """A queue with its processes; a context manager that ends them."""

    entry: Entry
    url: str
    meter: Meter
    processes: int = 1
    count: int = 0
    """Emails in a drain."""
    first: int = 0
    """The number of the next email."""
    rss_mb: list[float] = field(default_factory=list)
    """Memory of the first worker after each drain."""
    emails_of_first: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self._stack.close)
            self.producer = self._start()
            self.producer.ask("setup")
            self.workers = [self._start() for _ in range(self.processes)]
            on_failure.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> PeerProcess:
        return self._stack.enter_context(PeerProcess(self.entry, self.url))

    def fill(self, count: int, tenants: int = 0) -> float:
        """Enqueue in bulk; returns the seconds."""
        seconds = self.producer.ask("fill", self.first, count, tenants)["seconds"]
        self.first += count
        return float(seconds)

    def enqueue(self, count: int) -> dict[str, float]:
        """Enqueue one by one."""
        answer: dict[str, float] = self.producer.ask("enqueue", self.first, count)
        self.first += count
        return answer

    def choose_count(self, fewest: int, most: int, seconds: float) -> None:
        """Choose how many emails a drain has: so many that it takes about these seconds at most."""
        rate = max(self.drain(count=count).per_s for count in (fewest, fewest * 2))
        self.count = max(fewest, min(most, int(rate * seconds) // 100 * 100))

    def drain(self, processes: int = 1, count: int | None = None, tenants: int = 0) -> Drained:
        """Fill while the workers are paused, then let them drain.

        Starting a worker is not part of the cost: it has connected before, and found nothing.
        """
        count = count or self.count
        workers = self.workers[:processes]
        target = sum(worker.done for worker in workers) + count
        for worker in workers:
            worker.ask("work", "-", 0, tenants)
        time.sleep(SETTLE_SECONDS)
        with ExitStack() as paused:
            for worker in workers:
                paused.enter_context(worker.paused())
            self.fill(count, tenants)
            before = self.meter.read(*(worker.process.pid for worker in workers))
            start = clock()
        wait_until_done(workers, target)
        for worker in workers:
            worker.ask("stop")
        cost = self.meter.read(*(worker.process.pid for worker in workers)) - before
        end = max(worker.last_ns for worker in workers)
        self.emails_of_first = self.workers[0].done
        self.rss_mb.append(round(meters.rss_mb(self.workers[0].process.pid), 1))
        return Drained(count, (end - start) / 1e9, cost)


def median_rate(drains: list[Drained]) -> int:
    """Return the median of the rates."""
    return round(statistics.median(drain.per_s for drain in drains))
