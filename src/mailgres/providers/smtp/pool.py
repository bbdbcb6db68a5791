"""Idle connections to an SMTP server, kept for the next message."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.providers.smtp.session import Session

IDLE_SECONDS = 30.0
"""Seconds that a connection may be idle; some servers close it after a minute."""

MOST_MESSAGES = 100
"""The most messages on one connection; many servers refuse more."""


class Pool:
    """Keeps at most `size` idle connections and returns the one used last."""

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
        """Return an idle connection, or None; close those that were idle too long."""
        with self._lock:
            oldest = self._clock() - self._idle
            old = [each for each in self._sessions if each.used_at < oldest]
            self._sessions = [each for each in self._sessions if each.used_at >= oldest]
            session = self._sessions.pop() if self._sessions else None
        _close(old)
        return session

    def put(self, session: Session) -> None:
        """Keep a connection, unless it is used up or there are enough."""
        with self._lock:
            keep = self._open and session.sent < self._messages and len(self._sessions) < self._size
            if keep:
                self._sessions.append(session)
        if not keep:
            session.close()

    def close(self) -> None:
        """Close all connections and keep no more."""
        with self._lock:
            self._open = False
            sessions, self._sessions = self._sessions, []
        _close(sessions)


def _close(sessions: list[Session]) -> None:
    """Close connections, outside the lock, because QUIT takes time."""
    for session in sessions:
        session.close()
