"""What may be true of an email: a model of the queue that knows nothing of its SQL.

It is written from docs/lifecycle.md. A letter says what has happened to an email, and from that
which state it may be in, whether a worker may get it, and how many copies of it the provider may
have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

LEASE = timedelta(seconds=60)
KEY_WINDOW = timedelta(hours=23)
UNCERTAIN_FOR = timedelta(days=3)
MOST_LOSSES = 5
State = Literal["pending", "sending", "sent", "failed", "cancelled"]


@dataclass
class Letter:
    """One email. `perhaps`: an earlier call may have delivered it, and nobody knows.

    `allowed`: how many copies there may be at most: one, and one more for each duplicate that a
    template or a person accepted. `due`: when it may be claimed, as the queue says.
    """

    id: UUID
    keyed: bool
    resends: bool
    due: datetime
    state: State = "pending"
    token: UUID | None = None
    lease_until: datetime | None = None
    started_at: datetime | None = None
    perhaps: datetime | None = None
    losses: int = 0
    copies: int = 0
    allowed: int = 1
    generation: int = 0

    # what the model allows

    def may_be_claimed(self, now: datetime) -> bool:
        return self.state == "pending" and self.due <= now

    def is_lost(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until <= now

    def must_be_held(self) -> bool:
        """Whether only a person may send it again: nothing protects against a second copy."""
        return not self.keyed and not self.resends

    def key_protects(self, now: datetime) -> bool:
        begun = self.perhaps or self.started_at
        return self.keyed and begun is not None and now < begun + KEY_WINDOW

    def may_be_given_up(self, now: datetime) -> bool:
        """Whether a claim may leave it to a person: it has been uncertain for too long."""
        longest = KEY_WINDOW if self.keyed else UNCERTAIN_FOR
        return self.perhaps is not None and now >= self.perhaps + longest

    def refusal_of_cancel(self) -> str | None:
        if self.state == "sent":
            return "MG021"
        if self.started_at:
            return "MG022"
        return "MG023" if self.perhaps and self.state != "cancelled" else None

    def refusal_of_retry(self, now: datetime, *, accepts_duplicate: bool) -> str | None:
        if self.state in ("sent", "sending"):
            return "MG021" if self.state == "sent" else "MG022"
        unprotected = self.perhaps and not self.key_protects(now)
        return "MG024" if unprotected and not accepts_duplicate else None

    # what happens

    def claim(self, token: UUID, now: datetime) -> None:
        self.state, self.token, self.lease_until = "sending", token, now + LEASE
        self.started_at = now if self.keyed else None

    def release(self, state: State) -> None:
        """The worker loses it; a call that had started may have delivered it."""
        if state != "sent":
            self.perhaps = self.perhaps or self.started_at
        self.state, self.token, self.lease_until, self.started_at = state, None, None, None
        if state == "sent":
            self.perhaps = None

    def lose_lease(self, now: datetime) -> None:
        """Its worker is dead."""
        self.losses += 1
        started = self.started_at is not None
        if self.losses >= MOST_LOSSES or (started and self.must_be_held()):
            self.release("failed")
            return
        if started and not self.keyed:
            self.allowed += 1  # the template accepts it
        self.release("pending")
        self.due = min(self.due, now)

    def reopen(self, now: datetime, *, new_key: bool) -> None:
        """A person retries it."""
        if new_key:
            self.allowed += self.perhaps is not None
            self.generation += 1
            self.perhaps = None
        self.state, self.due, self.losses = "pending", now, 0
