"""Extend the leases of emails that take longer: a slow provider, a database that is away.

The same thread logs the events of providers.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import psycopg

from mailgres.outage import level
from mailgres.safe_errors import reason
from mailgres.worker.event_log import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from mailgres.model import ClaimedEmail
    from mailgres.worker.inflight import InFlight
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 2.0
"""Seconds between checks, unless the lease needs shorter ones."""


class LeaseKeeper(threading.Thread):
    """Checks several times per lease, and extends leases of which a third has passed."""

    def __init__(self, store: Store, held: InFlight, lease: timedelta) -> None:
        super().__init__(name="mailgres-keeper", daemon=True)
        self.store = store
        self.held = held
        self.lease = lease
        self.events = EventLog(store)
        self._closing = threading.Event()

    def close(self, timeout: float | None = None) -> None:
        """Stop: leases expire from now on. Wait for at most `timeout`: the database may be away."""
        self._closing.set()
        self.join(timeout)

    def run(self) -> None:
        """Extend leases until closed."""
        third = self.lease.total_seconds() / 3
        while not self._closing.wait(min(third / 3, CHECK_INTERVAL_SECONDS)):
            self.events.log_new()
            if emails := self.held.older_than(third):
                self._extend(emails)
        self.events.log_new()

    def _extend(self, emails: Sequence[ClaimedEmail]) -> None:
        try:
            still_ours = self.store.extend(emails, self.lease)
        except psycopg.Error as error:
            reported = {"action": "extend", "error": reason(error)}
            log.log(level(error), "leases not extended", extra=reported)
            return
        self.held.extended(email for email in emails if email.claim in still_ours)
        if lost := [email for email in emails if email.claim not in still_ours]:
            log.warning("leases lost", extra={"action": "extend", "emails": len(lost)})
            self.held.remove(lost)
