"""Idle connections to an SMTP server, kept for the next message."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.providers.smtp.session import Session

IDLE_SECONDS = 30.0
"""How long a connection may wait; servers hang up after a few minutes, some after one."""

MOST_MESSAGES = 100
"""How many messages a connection carries; many servers refuse more."""


class Pool:
    """Keeps at most `size` connections, and gives the one that was used last."""

    def __init__(
        self,
        size: int,
        *,
        idle: float = IDLE_SECONDS,
        messages: int = MOST_MESSAGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size = size
        self._idle = idle
        self._messages = messages
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: list[Session] = []
        self._open = True

    def take(self) -> Session | None:
        """A connection that waits, or None; those that waited too long are closed."""
        with self._lock:
            oldest = self._clock() - self._idle
            old = [each for each in self._sessions if each.used_at < oldest]
            self._sessions = [each for each in self._sessions if each.used_at >= oldest]
            session = self._sessions.pop() if self._sessions else None
        _close(old)
        return session

    def put(self, session: Session) -> None:
        """Keep a connection, unless it has carried enough or there are enough of them."""
        with self._lock:
            keep = self._open and session.sent < self._messages and len(self._sessions) < self._size
            if keep:
                self._sessions.append(session)
        if not keep:
            session.close()

    def close(self) -> None:
        """Close all, and keep no more."""
        with self._lock:
            self._open = False
            sessions, self._sessions = self._sessions, []
        _close(sessions)


def _close(sessions: list[Session]) -> None:
    """Outside of the lock: saying goodbye takes a server's time."""
    for session in sessions:
        session.close()
