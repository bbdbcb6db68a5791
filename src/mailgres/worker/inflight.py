"""The emails this worker holds, from their claim until their outcome is written."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mailgres.model import Claim, ClaimedEmail


class InFlight:
    """Counts what is held, so that no more is claimed than can be sent, and knows whose lease ends.

    State changes under the lock; nobody waits for anything else while holding it.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        # By email and lease: one that was lost may be claimed again before its call returns.
        self._held: dict[Claim, tuple[ClaimedEmail, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, emails: Iterable[ClaimedEmail]) -> None:
        """Hold emails that were just leased."""
        now = self._clock()
        with self._changed:
            self._held.update((email.claim, (email, now)) for email in emails)

    def remove(self, emails: Iterable[ClaimedEmail]) -> None:
        """Let go of emails that are settled or not ours any more."""
        with self._changed:
            for email in emails:
                self._held.pop(email.claim, None)
            self._changed.notify_all()

    def extended(self, emails: Iterable[ClaimedEmail]) -> None:
        """Remember that these leases were just lengthened."""
        now = self._clock()
        with self._changed:
            for email in emails:
                if email.claim in self._held:
                    self._held[email.claim] = (email, now)

    def older_than(self, seconds: float) -> list[ClaimedEmail]:
        """Emails whose lease was taken or lengthened longer ago than this."""
        then = self._clock() - seconds
        with self._changed:
            return [email for email, since in self._held.values() if since <= then]

    def wait_for_room(self, timeout: float, least: int = 1) -> int:
        """How many more may be claimed; waits a while if it is fewer than `least`."""
        with self._changed:
            self._changed.wait_for(lambda: self.capacity - len(self._held) >= least, timeout)
            return max(self.capacity - len(self._held), 0)

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is held; tells whether that was so in time."""
        return self.wait_until_at_most(0, timeout)

    def wait_until_at_most(self, emails: int, timeout: float) -> bool:
        """Wait until no more than so many are held; tells whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._held) <= emails, timeout)

    def all(self) -> list[ClaimedEmail]:
        """Everything that is held."""
        with self._changed:
            return [email for email, _ in self._held.values()]
