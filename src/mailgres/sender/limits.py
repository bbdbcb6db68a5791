"""Store what providers say about their limits, for all workers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import psycopg

from mailgres.outage import level
from mailgres.safe_errors import reason, where

if TYPE_CHECKING:
    from mailgres.model import Limits
    from mailgres.providers import Provider
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)


class LimitWatch:
    """Remembers what was stored last, and stores what differs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Limits] = {}
        self._lock = threading.Lock()

    def update(self, provider: Provider) -> None:
        """Ask the provider after a call. If the database is away, store it after the next call."""
        try:
            limits = provider.limits()
        except Exception as error:  # noqa: BLE001 - the call was made; nothing may undo that
            log.error("no limits: %s", where(error), extra={"action": "limits"})  # noqa: TRY400
            return
        with self._lock:
            if limits is None or limits == self._known.get(provider.name):
                return
            self._known[provider.name] = limits
        try:
            self._store.learn_limits(provider.name, limits)
        except psycopg.Error as error:
            reported = {"action": "limits", "error": reason(error)}
            log.log(level(error), "limits not kept", extra=reported)
            with self._lock:
                self._known.pop(provider.name, None)
