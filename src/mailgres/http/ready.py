"""Readiness: whether the database answers and has the required schema."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, measurements, queries
from mailgres.schema import status

if TYPE_CHECKING:
    from mailgres.worker.store import Store

CACHE_SECONDS = 1.0
"""Seconds for which a result is cached: anybody may ask, and the database must not be flooded."""
CONNECT_TIMEOUT_SECONDS = 2
"""Seconds to wait for a connection."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The result; `reason` is what is wrong, if something is."""

    reason: str | None
    schema: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        last = measurements.LAST_CLAIM.at
        return {
            "status": "not ready" if self.reason else "ready",
            **({"reason": self.reason} if self.reason else {}),
            "schema": self.schema,
            "lastRun": datetime.fromtimestamp(last, UTC).isoformat(timespec="seconds")
            if last
            else None,
        }


class Ready:
    """Asks the database, at most once in a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: Readiness | None = None
        self._until = 0.0

    def ask(self) -> Readiness:
        """Return the current result, or a recent one."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._until:
                self._known = self._look()
                self._until = time.monotonic() + CACHE_SECONDS
            return self._known

    def _look(self) -> Readiness:
        # Strangers read this: nothing in the database's own words.
        try:
            with self._connect() as connection, connection.transaction():
                connection.execute(QUERIES["limit"], {"milliseconds": "2000"})
                found = status.look(connection)
        except psycopg.OperationalError:
            return Readiness("the database does not answer")
        except psycopg.Error:
            return Readiness("the database has no schema of mailgres that this user may read")
        if found.works:
            return Readiness(None, found.current)
        if found.is_newer:
            return Readiness("the schema is of a newer version of mailgres", found.current)
        why = f"the schema is not {found.head}: run `mailgres migrate`"
        return Readiness(why, found.current)

    def _connect(self) -> psycopg.Connection:
        # Not from the pool: that janitors and runs use all of it says nothing about the database.
        url = database.conninfo(self._store.url)
        return psycopg.connect(
            url, connect_timeout=CONNECT_TIMEOUT_SECONDS, autocommit=True, prepare_threshold=None
        )


QUERIES = queries.load("metrics/metrics.sql")
