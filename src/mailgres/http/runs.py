"""Runs on request: each sends one claim in a thread, a few at once.

A run belongs to this process, not to the caller: if the caller disconnects, it runs to its end and
its outcomes are written. Concurrent runs never send an email twice, because each claims its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg

from mailgres.errors import MailgresError
from mailgres.http.answers import Refused
from mailgres.safe_errors import reason, redact_addresses
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from mailgres.worker import Pipeline, Summary

log = logging.getLogger(__name__)

MOST_RUNS = 4
"""Concurrent runs. One more request gets 429 and Retry-After."""
MOST_SECONDS = 50.0
"""Seconds that a run may take; it gives back what it has not started by then."""


class Runs:
    """Starts runs, and waits for them at the end."""

    def __init__(self, pipeline: Pipeline, stopping: threading.Event) -> None:
        self._pipeline = pipeline
        self._stopping = stopping
        self._free = threading.BoundedSemaphore(MOST_RUNS)
        self._threads = ThreadPoolExecutor(MOST_RUNS, thread_name_prefix="mailgres-run")

    async def run(self, batch_size: int | None) -> Summary:
        """Send one claim; refuse if there are too many runs, or if the service is stopping."""
        if self._stopping.is_set():
            raise Refused(503, "the service is stopping", "Call again.", {"Retry-After": "5"})
        if not self._free.acquire(blocking=False):
            hint = f"{MOST_RUNS} runs are under way and send what is due. Call again later."
            raise Refused(429, "too many runs at once", hint, {"Retry-After": "5"})
        run = self._threads.submit(self._run, batch_size)
        try:
            return await asyncio.shield(asyncio.wrap_future(run))
        except MailgresError as error:
            raise _unavailable(error) from None
        except psycopg.Error as error:
            said = f"The database refuses it: {reason(error)}"
            raise _unavailable(from_database(error) or MailgresError(said)) from None

    def close(self) -> None:
        """Wait for the runs under way."""
        self._threads.shutdown(wait=True)

    def _run(self, batch_size: int | None) -> Summary:
        try:
            worker = self._pipeline.worker(batch_size=batch_size, stopping=self._stopping)
            return worker.drain(once=True, max_seconds=MOST_SECONDS)
        finally:
            self._free.release()


def _unavailable(error: MailgresError) -> Refused:
    log.error("a run failed: %s", redact_addresses(error.message), extra={"action": "http"})
    return Refused(503, redact_addresses(error.message), error.hint or "Call again.")
