"""Writes events into the database before their requests are answered.

All events of a request are recorded or none. Requests that come while others are being written wait
for them and are then written together, in one transaction: under load a commit serves many.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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

MOST_WRITERS = 2
"""Transactions at once; requests that come meanwhile share the next one."""
MOST_EVENTS = 1000
"""Events in one transaction, as many as one request may have."""
MOST_THREADS = 4
"""Requests at once that wait for something else, such as a certificate."""
CONNECTION_SECONDS = 3.0
"""Seconds to wait for a connection before the database counts as away."""
RETRY_AFTER_SECONDS = 30
IGNORED = "ignored"
"""The result of an event that is about no email."""
_DATABASE_AWAY = ("08", "53", "57P")
"""SQLSTATEs of a database that takes no request now, whatever its events are."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The events of a request, as arguments of record_email_event, and their results to come."""

    events: list[dict[str, object]]
    results: Future[list[str]] = field(default_factory=Future)


class Recorder:
    """Records events. A caller that disconnects does not stop what it started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="mailgres-webhook")
        self._writers = ThreadPoolExecutor(MOST_WRITERS, thread_name_prefix="mailgres-events")
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()

    async def record(self, events: Sequence[tuple[str, Event]]) -> dict[str, int]:
        """Record events of providers; return how many there were of each result."""
        ours = [
            _arguments(provider, event) for provider, event in events if event.is_about_an_email
        ]
        results = Counter({IGNORED: len(events) - len(ours)})
        if ours:
            request = _Request(ours)
            with self._lock:
                self._waiting.append(request)
            self._writers.submit(self._write)
            try:
                found = await asyncio.shield(asyncio.wrap_future(request.results))
            except psycopg.Error as error:
                raise _refusal(error) from None
            results.update(found)
        return dict(+results)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that blocks, in a thread for webhooks."""
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(work)))

    def close(self) -> None:
        """Wait for what is being written."""
        self._threads.shutdown(wait=True)
        self._writers.shutdown(wait=True)

    def _write(self) -> None:
        """Write the requests that wait. Another writer may have taken that for which this runs."""
        requests = self._take()
        try:
            if requests:
                self._write_together(requests)
        except Exception as error:  # noqa: BLE001 - the requests raise it
            for request in requests:
                if not request.results.done():
                    request.results.set_exception(error)

    def _take(self) -> list[_Request]:
        """Return the requests that wait, in order, as many as fit into a transaction."""
        taken: list[_Request] = []
        count = 0
        with self._lock:
            while self._waiting and (
                not taken or count + len(self._waiting[0].events) <= MOST_EVENTS
            ):
                taken.append(self._waiting.popleft())
                count += len(taken[-1].events)
        return taken

    def _write_together(self, requests: list[_Request]) -> None:
        try:
            results = self._record([event for request in requests for event in request.events])
        except psycopg.Error as error:
            # What is wrong with one request, or locks its emails, must not harm the others.
            if len(requests) == 1 or (error.sqlstate or "08").startswith(_DATABASE_AWAY):
                raise
            for request in requests:
                self._write_alone(request)
            return
        for request in requests:
            count = len(request.events)
            request.results.set_result(results[:count])
            del results[:count]

    def _write_alone(self, request: _Request) -> None:
        try:
            request.results.set_result(self._record(request.events))
        except psycopg.Error as error:
            request.results.set_exception(error)

    def _record(self, events: list[dict[str, Any]]) -> list[str]:
        with self._store.connection(CONNECTION_SECONDS) as connection, connection.transaction():
            rows = connection.execute(QUERIES["record_events"], {"events": Jsonb(events)})
            return [str(row[0]) for row in rows]


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
