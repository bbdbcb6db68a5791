"""procrastinate draining tasks that do nothing.

    DATABASE_URL=… python procrastinate_noop.py TASKS

One worker, ten tasks at once, as its documentation advises for short tasks. Prints the seconds that
the drain took.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

import procrastinate


async def drain(url: str, count: int) -> float:
    """Fill the queue, then drain it; returns the seconds of the drain."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    done = 0

    @app.task(name="noop")
    async def noop(number: int) -> None:  # noqa: ARG001 - the signature of a task
        nonlocal done
        done += 1

    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*({"number": number} for number in range(count)))
        start = time.perf_counter()
        await app.run_worker_async(concurrency=10, wait=False, install_signal_handlers=False)
        seconds = time.perf_counter() - start
    if done != count:
        sys.exit(f"did {done} of {count}")
    return seconds


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(asyncio.run(drain(os.environ["DATABASE_URL"], int(sys.argv[1]))))
