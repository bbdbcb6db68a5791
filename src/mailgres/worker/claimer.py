"""Claim emails when there is room, and sleep when nothing is due.

A sleeping worker is registered, so that an enqueue wakes it. An email may arrive between a claim
that found nothing and that registration, and a transaction may have looked for sleeping workers
just before it commits. So the worker claims again after 5, 25 and 100 ms before it relies on being
woken. Polling covers the rest, and is the only way where a worker cannot or must not listen.
"""

from __future__ import annotations

import logging
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from mailgres import measurements
from mailgres.errors import DatabaseUnreachable
from mailgres.outage import level
from mailgres.queries import load
from mailgres.safe_errors import reason
from mailgres.worker.finisher import UNREACHABLE

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from mailgres.model import ClaimedEmail
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)

RECHECK_DELAYS_SECONDS = (0.0, 0.005, 0.025, 0.1)
"""Seconds before each further claim after one that found nothing."""
SECOND = timedelta(seconds=1)
SLEEP_REGISTRATION = 60 * SECOND
"""How long a registration as sleeping is valid; it is renewed at half of that."""
MAX_CONNECT_ATTEMPTS = 6
"""Attempts to reach the database, each after twice the wait, before a run may stop waiting."""
SCHEMA_CHANGED = (psycopg.errors.DatatypeMismatch, psycopg.errors.FeatureNotSupported)
"""A column was added to email_queue while a claim, whose result is its row, was under way."""
MAX_SCHEMA_CHANGES = 5
"""Claims in a row that may fail so; a migration changes the table once or twice."""


def jitter() -> float:
    """Return a random factor around 1, so that workers do not run in step."""
    return random.uniform(0.8, 1.2)  # noqa: S311 - times, not secrets


class Claimer:
    """One connection that claims and listens."""

    def __init__(
        self, store: Store, providers: Sequence[str], lease: timedelta, poll: float
    ) -> None:
        self.store = store
        self.providers = providers
        self.lease = lease
        self.poll = poll
        self._connection: psycopg.Connection | None = None
        self._is_asleep = False
        self._empty = 0
        self._overdue = 0
        self._trouble = 0
        self._changed = 0

    @property
    def in_trouble(self) -> bool:
        """Return whether the last call found the database unreachable."""
        return self._trouble > 0

    @property
    def gave_up(self) -> bool:
        """Return whether the database has been unreachable for several attempts."""
        return self._trouble >= MAX_CONNECT_ATTEMPTS

    def claim(self, limit: int) -> list[ClaimedEmail]:
        """Claim up to `limit` emails; none while the database is away."""
        try:
            connection = self._connect()
            emails = self.store.claim(limit, self.lease, self.providers, connection)
            if len(emails) == limit:
                self._mark_awake(connection)
        except (*UNREACHABLE, DatabaseUnreachable) as error:
            self._lose_connection(error)
            return []
        except SCHEMA_CHANGED:
            self._changed += 1
            if self._changed > MAX_SCHEMA_CHANGES:
                raise
            log.info("the schema changed during a claim: claiming again", extra={"action": "claim"})
            return []
        self._trouble = self._changed = 0
        measurements.LAST_CLAIM.note()
        self._empty = 0 if emails else self._empty + 1
        return emails

    def rest(self, stopping: threading.Event) -> None:
        """Wait until there may be something to claim."""
        if self._trouble:
            stopping.wait(min(0.1 * 2**self._trouble, 5.0) * jitter())
            return
        try:
            until_due = self._mark_asleep(self._connect())
            self._listen(self._wait(until_due), stopping)
        except (*UNREACHABLE, DatabaseUnreachable) as error:
            self._lose_connection(error)

    def _wait(self, until_due: float | None) -> float:
        """Return the seconds until the next claim.

        Due rows that cannot be claimed are locked by another session, perhaps for long: after a few
        claims they are left to the poll.
        """
        self._overdue = self._overdue + 1 if until_due is not None and until_due <= 0 else 0
        waits = [min(self.poll * jitter(), SLEEP_REGISTRATION / SECOND / 2)]
        waits += RECHECK_DELAYS_SECONDS[self._empty - 1 : self._empty]
        if self._overdue:
            waits += RECHECK_DELAYS_SECONDS[self._overdue - 1 : self._overdue]
        elif until_due is not None:
            waits.append(until_due)
        return min(waits)

    def close(self) -> None:
        """Deregister and close the connection."""
        if self._connection is None:
            return
        try:
            self._mark_awake(self._connection)
        except psycopg.Error:
            log.debug("not signed off", extra={"action": "mark_awake"})
        self._connection.close()
        self._connection = None

    def _connect(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = self.store.connect()
            self._is_asleep = False
            if self.store.listens:
                self._connection.execute(load("worker/store.sql")["listen"])
        return self._connection

    def _mark_asleep(self, connection: psycopg.Connection) -> float | None:
        """Register as sleeping; return the seconds until an email is due, if that is soon."""
        until_due = self.store.mark_asleep(connection, SLEEP_REGISTRATION)
        self._is_asleep = self.store.listens
        return until_due.total_seconds() if until_due is not None else None

    def _mark_awake(self, connection: psycopg.Connection) -> None:
        if self._is_asleep:
            self.store.mark_awake(connection)
            self._is_asleep = False

    def _listen(self, seconds: float, stopping: threading.Event) -> None:
        """Wait at most `seconds` for a notification; check now and then whether to stop."""
        if not self.store.listens:
            stopping.wait(seconds)
            return
        connection = self._connect()
        deadline = time.monotonic() + seconds
        while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            if any(True for _ in connection.notifies(timeout=min(left, 0.5), stop_after=1)):
                return

    def _lose_connection(self, error: Exception) -> None:
        self._trouble = min(self._trouble + 1, MAX_CONNECT_ATTEMPTS)
        self.store.outage.failed(error)
        reported = {"action": "claim", "error": reason(error)}
        log.log(level(error), "the claim failed", extra=reported)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
