"""procrastinate with a task that does nothing.

Settings, from its docs: the asynchronous connector; howto/production/concurrency: several tasks at
once for short asynchronous tasks (10); LISTEN/NOTIFY on (the default); `batch_defer` for thousands.
A finished job stays in its table, with its events.
"""

from __future__ import annotations

import asyncio
import logging

import procrastinate
from protocol import AsyncPeer, chunks, main

GROW = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, status, scheduled_at, args)
    SELECT 'default', 'email', 0, %(status)s::procrastinate_job_status,
           now() + interval '1 day', '{"number": 0}'
    FROM generate_series(1, %(count)s)
"""
LEFT = """
    SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')
    AND (scheduled_at IS NULL OR scheduled_at <= now())
"""


class Procrastinate(AsyncPeer):
    """The queue."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

        @self.app.task(name="email")
        async def email(number: int) -> None:
            await self.handle(number)

        self.email = email

        async def connect() -> None:
            await self.app.open_async()

        self.wait(connect())

    def setup(self) -> None:
        """Make the schema."""
        self.wait(self.app.schema_manager.apply_schema_async())

    def fill(self, first: int, count: int, tenants: int) -> None:  # noqa: ARG002 - it has none
        """Enqueue with batch_defer."""
        for numbers in chunks(first, count):
            jobs = ({"number": number} for number in numbers)
            self.wait(self.email.batch_defer_async(*jobs))

    async def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        await self.email.defer_async(number=number)

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        connector = self.app.connector
        self.wait(connector.execute_query_async(GROW, status="succeeded", count=sent))
        self.wait(connector.execute_query_async(GROW, status="todo", count=future))
        self.wait(connector.execute_query_async("ANALYZE procrastinate_jobs"))

    def left(self) -> int:
        """Count."""
        return self.wait(self.app.connector.execute_query_one_async(LEFT))["count"]

    def work(self) -> None:
        """Start a worker."""

        async def start() -> None:
            self.task = asyncio.create_task(
                self.app.run_worker_async(
                    concurrency=20 if self.delay else 10, install_signal_handlers=False
                )
            )

        self.wait(start())

    def stop(self) -> None:
        """Stop it."""

        async def finish() -> None:
            self.task.cancel()
            await asyncio.wait([self.task])

        self.wait(finish())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(Procrastinate)
