"""The metrics of the whole queue, read in one short transaction."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from mailgres import queries
from mailgres.metrics.definitions import DEAD_AGES, MOST_CODES, MOST_TENANTS
from mailgres.metrics.monotonic_counter import MonotonicCounter
from mailgres.metrics.samples import Sample, Samples, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import LiteralString

    import psycopg

    from mailgres.worker.store import Store

QUERIES = queries.load("metrics/metrics.sql")
CONNECTION_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for a connection."""
LIMIT = 5.0
"""Seconds for all statements together."""
CIRCUITS = ("closed", "open", "half_open")


class TooSlow(Exception):
    """The database did not answer everything in time."""


class QueueReader:
    """Reads all metrics of the queue at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._attempts = MonotonicCounter(QUERIES["attempts"])
        self._events = MonotonicCounter(QUERIES["events"])

    def read(self) -> Samples:
        """Return all metrics of the queue; raise the database's error, or TooSlow."""
        start = time.monotonic()
        found: Samples = defaultdict(list)
        with (
            self._store.pool.connection(CONNECTION_TIMEOUT_SECONDS) as connection,
            connection.transaction(),
        ):
            connection.execute(QUERIES["read_only"])
            asked = _Asked(connection, start + LIMIT)
            for part in (self._counters, _queue, _dead, _tenants, _providers, _workers):
                for name, labels, value in part(asked):
                    found[name].append((labels, value))
        found["scrape_seconds"] = [((), time.monotonic() - start)]
        return found

    def _counters(self, asked: _Asked) -> Iterator[Sample]:
        ((hour,),) = asked.rows("hour")
        for attempt, attempts in self._attempts.read(asked.ask, hour).items():
            yield "retry_attempts_total", (attempt,), attempts
        events = self._events.read(asked.ask, hour)
        for event, emails in events.items():
            yield "events_total", (event,), emails
        yield "dlq_entries_total", (), events.get("dead", 0)
        for attempt, rate in asked.rows("success"):
            yield "retry_success_rate", (attempt,), rate


class _Asked:
    """A transaction with a time limit for all its statements together."""

    def __init__(self, connection: psycopg.Connection[Any], deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def rows(self, query: str, **parameters: object) -> list[Any]:
        """Return the rows of a named query."""
        return self.ask(QUERIES[query], parameters)

    def ask(self, query: LiteralString, parameters: Mapping[str, object]) -> list[Any]:
        """Return the rows of a query, within the remaining time."""
        left = round((self._deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise TooSlow
        self._connection.execute(QUERIES["limit"], {"milliseconds": str(left)})
        return self._connection.execute(query, parameters or None).fetchall()


def _queue(asked: _Asked) -> Iterator[Sample]:
    for status, emails in asked.rows("queue"):
        yield "queue_depth", (status,), emails
    ((due, oldest, parked),) = asked.rows("due")
    yield "queue_due", (), due
    yield "queue_oldest_due_seconds", (), oldest
    yield "queue_parked", (), parked


def _dead(asked: _Asked) -> Iterator[Sample]:
    ages = asked.rows("dead_by_hour")
    yield "dlq_size", (), sum(emails for _, emails in ages)
    yield "dlq_age_seconds", (), spread(ages, DEAD_AGES)
    for code, emails in asked.rows("dead_by_code", most=MOST_CODES):
        yield "dlq_by_error_code", (code,), emails
    for tenant, emails in asked.rows("dead_by_tenant", most=MOST_TENANTS):
        yield "dlq_by_company", (tenant,), emails


def spread(values: list[tuple[float, int]], bounds: tuple[float, ...]) -> Spread:
    """Return a histogram of values, each with its count."""
    at_most = tuple(sum(n for value, n in values if value <= bound) for bound in bounds)
    count = sum(n for _, n in values)
    return Spread(bounds, at_most, count, sum(value * n for value, n in values))


def _tenants(asked: _Asked) -> Iterator[Sample]:
    names = (
        "tenant_jobs_processed",
        "tenant_current_priority",
        "tenant_consecutive_batch",
        "tenant_rounds_without_processing",
        "tenant_backlog",
    )
    for tenant, *figures in asked.rows("tenants", most=MOST_TENANTS):
        for name, figure in zip(names, figures, strict=True):
            yield name, (tenant,), figure


def _providers(asked: _Asked) -> Iterator[Sample]:
    for provider, is_usable, circuit, emails, calls, quota in asked.rows("providers"):
        yield "provider_usable", (provider,), int(is_usable)
        for state in CIRCUITS:
            yield "provider_circuit_state", (provider, state), int(state == circuit)
        for unit, tokens in (("emails", emails), ("calls", calls)):
            if tokens is not None:
                yield "provider_tokens", (provider, unit), tokens
        if quota is not None:
            yield "provider_quota_used", (provider,), quota


def _workers(asked: _Asked) -> Iterator[Sample]:
    for event, emails in asked.rows("reported"):
        yield "reported_emails", (event,), emails
    ((alive,),) = asked.rows("workers")
    yield "workers", (), alive
    for rule, severity, firing in asked.rows("alerts"):
        yield "alerts_firing", (rule, severity), firing
