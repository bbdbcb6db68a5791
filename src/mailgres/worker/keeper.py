"""Lengthens the leases of what takes longer: a slow provider, a database that is away."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from datetime import timedelta

    from mailgres.store import Store
    from mailgres.worker.inflight import InFlight

log = logging.getLogger(__name__)


class Keeper(threading.Thread):
    """Looks several times per lease, and lengthens those of which a third has passed."""

    def __init__(self, store: Store, held: InFlight, lease: timedelta) -> None:
        super().__init__(name="mailgres-keeper", daemon=True)
        self.store = store
        self.held = held
        self.lease = lease
        self._closing = threading.Event()

    def close(self) -> None:
        """End; leases run out from now on."""
        self._closing.set()
        self.join()

    def run(self) -> None:
        """Keep leases until closed."""
        third = self.lease.total_seconds() / 3
        while not self._closing.wait(third / 3):
            emails = self.held.older_than(third)
            if not emails:
                continue
            try:
                still_ours = self.store.extend(emails, self.lease)
            except psycopg.Error as error:
                log.warning("leases not extended", extra={"action": "extend", "error": str(error)})
                continue
            self.held.extended(email for email in emails if email.id in still_ours)
            if lost := [email for email in emails if email.id not in still_ours]:
                log.warning("leases lost", extra={"action": "extend", "emails": len(lost)})
                self.held.remove(lost)
