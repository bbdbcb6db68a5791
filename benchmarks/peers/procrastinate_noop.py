"""procrastinate with a task that does nothing.

Settings, from its docs: the asynchronous connector; howto/production/concurrency: several tasks at
once for short asynchronous tasks (10); LISTEN/NOTIFY on (the default); `batch_defer` for thousands.
Where calls take time: twenty at once, heartbeats every second, and its howto on
stalled jobs: the jobs of workers without a heartbeat for 5 s are retried. A finished job stays in
its table, with its events.
"""

from __future__ import annotations

import asyncio
import contextlib
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
        execute = self.app.connector.execute_query_async
        # Its triggers would write an event and a notification for each row.
        self.wait(execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER"))
        self.wait(execute(GROW, status="succeeded", count=sent))
        self.wait(execute(GROW, status="todo", count=future))
        self.wait(execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER"))
        self.wait(execute("ANALYZE procrastinate_jobs"))

    def left(self) -> int:
        """Count."""
        return self.wait(self.app.connector.execute_query_one_async(LEFT))["count"]

    def work(self) -> None:
        """Start a worker."""

        async def start() -> None:
            self.task = asyncio.create_task(self.run_worker())
            if self.delay:
                self.rescuer = asyncio.create_task(self.retry_stalled())

        self.wait(start())

    async def run_worker(self) -> None:
        """Run until it is cancelled; start again after a failure, as a supervisor would."""
        slow = {"concurrency": 20, "update_heartbeat_interval": 1, "stalled_worker_timeout": 5}
        while True:
            try:
                await self.app.run_worker_async(
                    install_signal_handlers=False, **(slow if self.delay else {"concurrency": 10})
                )
            except (procrastinate.exceptions.ProcrastinateException, OSError):
                await asyncio.sleep(0.5)

    async def retry_stalled(self) -> None:
        """Retry the jobs of dead workers, as its docs advise."""
        manager = self.app.job_manager
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(procrastinate.exceptions.ProcrastinateException, OSError):
                for job in await manager.get_stalled_jobs(seconds_since_heartbeat=5):
                    await manager.retry_job(job)

    def stop(self) -> None:
        """Stop it."""

        async def finish() -> None:
            tasks = [self.task, *([self.rescuer] if self.delay else [])]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        self.wait(finish())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(Procrastinate)
