"""pgqueuer with an entrypoint that does nothing.

Settings, from its docs: the asyncpg driver and uvloop, as in its own benchmark
(tools/benchmark.py); guides/performance-tuning: a larger batch_size for short jobs (500, as
mailgres claims here), no per-entrypoint limit; `enqueue` with lists for thousands. Where calls take
time: twenty at once, and guides/heartbeat: a heartbeat_timeout of 5 s (the default is 30). A
finished job is deleted and logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from protocol import AsyncPeer, chunks, main

GROW_SENT = """
    INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, created)
    SELECT n, 'successful', 0, 'email', now() - interval '1 day' FROM generate_series(1, $1::int) n
"""
GROW_FUTURE = """
    INSERT INTO pgqueuer (priority, entrypoint, payload, status, execute_after)
    SELECT 0, 'email', '0'::bytea, 'queued', now() + interval '1 day'
    FROM generate_series(1, $1::int)
"""
LEFT = "SELECT count(*) FROM pgqueuer WHERE execute_after <= now()"


class Pgqueuer(AsyncPeer):
    """The queue."""

    producer: Queries | None = None

    async def connect(self) -> Queries:
        """Connect, once."""
        if self.producer is None:
            self.producer = Queries(AsyncpgDriver(await asyncpg.connect(self.url)))
        return self.producer

    async def execute(self, *query: object) -> None:
        """Run a statement."""
        await (await self.connect()).driver.execute(*query)

    def setup(self) -> None:
        """Install."""

        async def install() -> None:
            await (await self.connect()).install()

        self.wait(install())

    def fill(self, first: int, count: int, tenants: int) -> None:  # noqa: ARG002 - it has none
        """Enqueue with lists."""

        async def enqueue() -> None:
            queries = await self.connect()
            for numbers in chunks(first, count):
                payloads = [b"%d" % number for number in numbers]
                await queries.enqueue(["email"] * len(payloads), payloads, [0] * len(payloads))

        self.wait(enqueue())

    async def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        await (await self.connect()).enqueue("email", b"%d" % number)

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        self.wait(self.execute(GROW_SENT, sent))
        self.wait(self.execute(GROW_FUTURE, future))
        self.wait(self.execute("VACUUM ANALYZE pgqueuer"))

    def left(self) -> int:
        """Count."""

        async def count() -> int:
            return (await (await self.connect()).driver.fetch(LEFT))[0]["count"]

        return self.wait(count())

    def work(self) -> None:
        """Start a worker."""
        self.manager = self.wait(self.start())

    async def start(self) -> PgQueuer:
        """Run it in the loop; a connection that is lost is opened again."""
        manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))

        @manager.entrypoint("email")
        async def email(job: object) -> None:
            await self.handle(int(job.payload))

        slow = {
            "batch_size": 10,
            "max_concurrent_tasks": 20,
            "heartbeat_timeout": timedelta(seconds=5),
        }
        self.task = asyncio.create_task(
            manager.qm.run(**(slow if self.delay else {"batch_size": 500}))
        )
        self.task.add_done_callback(self.restart)
        return manager

    def restart(self, task: asyncio.Task) -> None:
        """Start again after a failure, as a supervisor would."""
        if not task.cancelled() and task.exception() and not self.manager.qm.shutdown.is_set():
            asyncio.create_task(self.start_again())  # noqa: RUF006

    async def start_again(self) -> None:
        """Wait for the server."""
        while True:
            await asyncio.sleep(0.5)
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                self.manager = await self.start()
                return

    def stop(self) -> None:
        """Stop it."""

        async def finish() -> None:
            self.manager.qm.shutdown.set()
            await self.task

        self.wait(finish())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main(Pgqueuer)
