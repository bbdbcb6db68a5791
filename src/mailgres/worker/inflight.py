"""The emails this worker holds, from their claim until their outcome is written."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mailgres.model import Claim, ClaimedEmail


class InFlight:
    """Counts the held emails, so that a worker claims no more than it can send; knows lease ages.

    State changes under the lock; no thread waits for anything else while holding it.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        # By email and lease: an email may be claimed again while a call under its lost lease runs.
        self._held: dict[Claim, tuple[ClaimedEmail, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, emails: Iterable[ClaimedEmail]) -> None:
        """Add emails that were just claimed."""
        now = self._clock()
        with self._changed:
            self._held.update((email.claim, (email, now)) for email in emails)

    def remove(self, emails: Iterable[ClaimedEmail]) -> None:
        """Remove emails that are settled or no longer ours."""
        with self._changed:
            for email in emails:
                self._held.pop(email.claim, None)
            self._changed.notify_all()

    def extended(self, emails: Iterable[ClaimedEmail]) -> None:
        """Record that these leases were just extended."""
        now = self._clock()
        with self._changed:
            for email in emails:
                if email.claim in self._held:
                    self._held[email.claim] = (email, now)

    def older_than(self, seconds: float) -> list[ClaimedEmail]:
        """Return the emails whose lease was taken or extended longer ago than this."""
        then = self._clock() - seconds
        with self._changed:
            return [email for email, since in self._held.values() if since <= then]

    def wait_for_room(self, timeout: float, least: int = 1) -> int:
        """Return how many more may be claimed; wait a while if that is fewer than `least`."""
        with self._changed:
            self._changed.wait_for(lambda: self.capacity - len(self._held) >= least, timeout)
            return max(self.capacity - len(self._held), 0)

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is held; return whether that was so in time."""
        return self.wait_until_at_most(0, timeout)

    def wait_until_at_most(self, emails: int, timeout: float) -> bool:
        """Wait until at most `emails` are held; return whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._held) <= emails, timeout)

    def all(self) -> list[ClaimedEmail]:
        """Return all held emails."""
        with self._changed:
            return [email for email, _ in self._held.values()]
