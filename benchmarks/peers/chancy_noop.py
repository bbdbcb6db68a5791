"""chancy with a job that does nothing.

Settings, from its docs: the asynchronous executor for many short jobs that wait for input and
output; `eager_polling`, so that a worker fetches as soon as jobs complete; notifications on (the
default); a concurrency of 500, as mailgres claims here; `push_many` for thousands. A finished
job stays in its table until its pruner deletes it.
"""

from __future__ import annotations

import logging

from chancy import Chancy, Queue, Worker, job
from protocol import AsyncPeer, main

GROW = """
    INSERT INTO chancy_jobs (id, queue, func, kwargs, state, scheduled_at, completed_at)
    SELECT gen_random_uuid(), 'email', '__main__.email', '{"number": 0}', %s,
           now() + interval '1 day', now() FROM generate_series(1, %s)
"""
LEFT = """
    SELECT count(*) FROM chancy_jobs
    WHERE state IN ('pending', 'running', 'retrying') AND scheduled_at <= now()
"""
QUIET = logging.getLogger("quiet")
peers: list[AsyncPeer] = []


@job(queue="email")
async def email(*, number: int) -> None:
    """Do nothing."""
    await peers[0].handle(number)


class ChancyPeer(AsyncPeer):
    """The queue."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        peers.append(self)
        self.chancy = Chancy(url, log=QUIET)
        self.worker: Worker | None = None
        self.wait(self.chancy.__aenter__())

    async def execute(self, query: str, *values: object) -> list[tuple]:
        """Run a statement."""
        async with self.chancy.pool.connection() as conn:
            cursor = await conn.execute(query, values)
            return await cursor.fetchall() if cursor.description else []

    def setup(self) -> None:
        """Make the schema."""
        self.wait(self.chancy.migrate())

    def fill(self, first: int, count: int, tenants: int) -> None:  # noqa: ARG002 - it has none
        """Enqueue with push_many."""
        jobs = [
            email.job.with_kwargs(number=number).with_queue("email")
            for number in range(first, first + count)
        ]

        async def push() -> None:
            async for _ in self.chancy.push_many(jobs):
                pass

        self.wait(push())

    async def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        await self.chancy.push(email.job.with_kwargs(number=number).with_queue("email"))

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        self.wait(self.execute(GROW, "succeeded", sent))
        self.wait(self.execute(GROW, "pending", future))
        self.wait(self.execute("ANALYZE chancy_jobs"))

    def left(self) -> int:
        """Count."""
        return self.wait(self.execute(LEFT))[0][0]

    def work(self) -> None:
        """Start a worker."""
        self.wait(self.start())

    async def start(self) -> None:
        """Declare the queue and start."""
        queue = Queue(
            name="email",
            concurrency=20 if self.delay else 500,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await self.chancy.declare(queue, upsert=True)
        self.worker = Worker(self.chancy, register_signal_handlers=False, shutdown_timeout=20)
        await self.worker.start()

    def stop(self) -> None:
        """Stop it."""
        self.wait(self.worker.stop())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(ChancyPeer)
