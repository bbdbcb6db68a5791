"""Log once that the database is away and once that it is back, however many threads notice."""

from __future__ import annotations

import logging
import threading
import time

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from mailgres.errors import DatabaseUnreachable
from mailgres.safe_errors import reason

log = logging.getLogger(__name__)

_CONNECTION_EXCEPTION = "08"
_SHUTTING_DOWN = {"57P01", "57P02", "57P03"}


def is_away(error: BaseException) -> bool:
    """Return whether an error means that the database is unreachable, not that it refused."""
    if isinstance(error, PoolTimeout | DatabaseUnreachable | psycopg.errors.ReadOnlySqlTransaction):
        return True
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, PoolClosed):
        return False
    state = error.sqlstate
    return state is None or state.startswith(_CONNECTION_EXCEPTION) or state in _SHUTTING_DOWN


def level(error: BaseException) -> int:
    """Return the level for a failure: an outage is logged elsewhere, once."""
    return logging.DEBUG if is_away(error) else logging.WARNING


class Outage:
    """What one process knows about an outage of the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._away = threading.Event()
        self._since = 0.0
        self._failures = 0

    def failed(self, error: BaseException) -> None:
        """Record an error; the first one of an outage is logged."""
        if not is_away(error):
            return
        with self._lock:
            if self._away.is_set():
                self._failures += 1
                return
            self._since, self._failures = time.monotonic(), 1
            self._away.set()
        said = reason(error)
        reported = {"action": "database", "event": "DatabaseLost", "error": said}
        log.warning("the database is away: %s", said, extra=reported)

    def answered(self, asked_at: float) -> None:
        """Record an answer to a call made at that time of the monotonic clock.

        A call made before the outage began says nothing.
        """
        if not self._away.is_set():  # without the lock: this runs after every call
            return
        with self._lock:
            if not self._away.is_set() or asked_at < self._since:
                return
            self._away.clear()
            seconds, failures = time.monotonic() - self._since, self._failures
        reported = {
            "action": "database",
            "event": "DatabaseBack",
            "seconds": round(seconds, 1),
            "failures": failures,
        }
        log.warning("the database is back after %.1f s", seconds, extra=reported)
