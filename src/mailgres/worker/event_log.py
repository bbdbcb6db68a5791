"""Log what happened to providers: a circuit opened, a quota was reached.

Each worker logs what its own calls caused, so that a fleet logs it once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg

from mailgres.safe_errors import redact_addresses

if TYPE_CHECKING:
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)

WHEN_FIXED = " (when it is fixed: mailgres providers reset {})"
HARMLESS = {"CircuitBreakerHalfOpen", "CircuitBreakerClosed", "Resumed"}


class EventLog:
    """Reads the events of providers, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: int | None = None

    def log_new(self) -> None:
        """Log the new events."""
        try:
            if self._last is None:
                self._last = self._store.last_event()
                return
            for number, provider, event, reason in self._store.events(self._last):
                self._last = number
                log.log(
                    logging.INFO if event in HARMLESS else logging.WARNING,
                    "%s: %s%s%s",
                    event,
                    provider,
                    f": {redact_addresses(reason)}" if reason else "",
                    WHEN_FIXED.format(provider) if event == "CircuitBreakerOpened" else "",
                    extra={"action": "provider", "event": event, "provider": provider},
                )
        except psycopg.Error:
            return  # logged when the database is back
