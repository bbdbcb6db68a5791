"""Writes events into the database, all of a request in one transaction, before it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.json import Jsonb

from mailgres import queries
from mailgres.http.answers import Refused
from mailgres.safe_errors import reason
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from mailgres.webhooks import Event
    from mailgres.worker.store import Store

    T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_THREADS = 4
"""Requests whose events are written at once; more wait for one of these."""
CONNECTION_SECONDS = 3.0
"""Seconds to wait for a connection before the database counts as away."""
RETRY_AFTER_SECONDS = 30
IGNORED = "ignored"
"""The result of an event that is about no email."""


class Recorder:
    """Records events. A caller that disconnects does not stop what it started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="mailgres-webhook")

    async def record(self, events: Sequence[tuple[str, Event]]) -> dict[str, int]:
        """Record events of providers; return how many there were of each result."""
        try:
            return await self.run(lambda: self._record(events))
        except psycopg.Error as error:
            raise _refusal(error) from None

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that blocks, in a thread for webhooks."""
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(work)))

    def close(self) -> None:
        """Wait for what is being written."""
        self._threads.shutdown(wait=True)

    def _record(self, events: Sequence[tuple[str, Event]]) -> dict[str, int]:
        ours = [(provider, event) for provider, event in events if event.is_about_an_email]
        if not ours:
            return {IGNORED: len(events)}
        results = Counter([IGNORED] * (len(events) - len(ours)))
        document = [_arguments(provider, event) for provider, event in ours]
        with self._store.connection(CONNECTION_SECONDS) as connection, connection.transaction():
            rows = connection.execute(QUERIES["record_events"], {"events": Jsonb(document)})
            results.update(str(row[0]) for row in rows)
        return dict(results)


def _arguments(provider: str, event: Event) -> dict[str, object]:
    """Return the arguments of record_email_event for JSON."""
    given = asdict(event) | {"provider": provider, "detail": dict(event.detail)}
    texts = {name: str(given[name]) for name in ("queue_id", "occurred_at") if given[name]}
    return {name: value for name, value in (given | texts).items() if value is not None}


def _refusal(error: psycopg.Error) -> Refused:
    """Return the answer: 4xx for what a retry cannot change, else 503, so that it is sent again.

    Neither repeats the database's words about a value.
    """
    if (error.sqlstate or "").startswith("MG"):
        known = from_database(error)
        return Refused(422, str(known.message if known else error), (known and known.hint) or "")
    log.error(
        "an event could not be recorded: %s",
        reason(error),
        extra={"action": "webhook", "sqlstate": error.sqlstate},
    )
    return Refused(
        503,
        "the event could not be stored now",
        "Send it again later.",
        {"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


QUERIES = queries.load("http/http.sql")
