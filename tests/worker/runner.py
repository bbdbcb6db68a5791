"""A worker with the double for a provider, as a process: `python -m worker.runner ORDER`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from mailgres import logs
from mailgres.errors import MailgresError
from mailgres.janitor import WorkerInfo
from mailgres.janitor.scheduler import Scheduler
from mailgres.model import ClaimedEmail, Outcome, Settled, Started
from mailgres.sender import Renderer, Sender
from mailgres.settings import Settings
from mailgres.worker import Worker
from mailgres.worker.fleet import on_signals
from mailgres.worker.store import QUERIES, Store
from worker.double import Double, Ledger, hang


@dataclass(frozen=True)
class Order:
    """What the process is to do; `stop_at` is a step of the pipeline where it hangs."""

    url: str
    ledger: str
    name: str = "worker-1"
    lease: float = 30.0
    concurrency: int = 4
    batch_size: int = 10
    poll: float = 0.1
    grace: float = 30.0
    timeout: float = 10.0
    drain: bool = False
    janitors: bool = False
    stop_at: str | None = None
    double: dict[str, Any] | None = None


class StoppingStore(Store):
    """A store that hangs at a step, after it has said so."""

    ledger: Ledger
    stop_at: str | None

    def start_attempts(
        self,
        emails: Iterable[ClaimedEmail],
        lease: timedelta | None = None,
        *,
        checked: bool = True,
    ) -> Started:
        self._point("start_attempts")
        return super().start_attempts(emails, lease, checked=checked)

    def finish(self, outcomes: Sequence[Outcome], *, hurry: bool = False) -> list[Settled]:
        self._point("finish")
        if self.stop_at == "during finish":
            document = json.dumps([outcome.as_json() for outcome in outcomes])
            with self.pool.connection() as connection, connection.transaction():
                connection.execute(QUERIES["finish"], {"outcomes": document})
                self._point("during finish")
        return super().finish(outcomes, hurry=hurry)

    def _point(self, point: str) -> None:
        if self.stop_at == point:
            self.ledger.note(point)
            hang()


class StoppingRenderer(Renderer):
    """Hangs when emails are claimed and nothing else has happened."""

    stopping: StoppingStore

    def render(self, emails: Sequence[ClaimedEmail]) -> Any:
        self.stopping._point("claimed")
        return super().render(emails)


def main(order: Order) -> None:
    ledger = Ledger(Path(order.ledger))
    store = StoppingStore(order.url, worker=order.name, timeout=order.timeout)
    store.ledger, store.stop_at = ledger, order.stop_at
    double = Double(ledger, **(order.double or {}))
    renderer = StoppingRenderer(store, "noreply@example.com")
    renderer.stopping = store
    worker = Worker(
        store,
        Sender(store, renderer, {double.name: double}),
        lease=timedelta(seconds=order.lease),
        concurrency=order.concurrency,
        batch_size=order.batch_size,
        poll=order.poll,
        grace=order.grace,
    )
    on_signals(worker.stop)
    scheduler = Scheduler(store.pool, WorkerInfo(order.name)) if order.janitors else None
    with scheduler or nullcontext():
        summary = worker.drain() if order.drain else worker.run()
    store.close()
    sys.stdout.write(json.dumps(summary.as_dict()) + "\n")


if __name__ == "__main__":
    ordered = Order(**json.loads(sys.argv[1]))
    logs.start(Settings(worker_name=ordered.name.replace(" ", "-"), log_level="debug"))
    try:
        main(ordered)
    except MailgresError as error:
        sys.exit(f"Error: {error.message}")
