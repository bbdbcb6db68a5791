"""Ends calls that take too long, even if their answer arrives slowly.

The timeout of a socket starts again with every byte that arrives, so a server that sends a byte now
and then would block a thread and its email forever. A separate thread watches the clock and shuts
down the connection of a call that has exceeded its time; the reader then sees the end of the data.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watch:
    """A call: its deadline, whether it expired, and its connection."""

    __slots__ = ("connection", "ends", "expired", "sock")

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.expired = False
        self.connection: Watched | None = None
        self.sock: socket.socket | None = None


_current: ContextVar[Watch | None] = ContextVar("mailgres_watch", default=None)


@contextmanager
def within(seconds: float) -> Iterator[Watch]:
    """Limit the time of this thread's calls; afterwards `expired` says whether it was exceeded.

    Only connections of `watched` pools are shut down.
    """
    watch = Watch(time.monotonic() + seconds)
    token = _current.set(watch)
    _watchman.add(watch)
    try:
        yield watch
    finally:
        _watchman.remove(watch)
        _current.reset(token)


class Watched:
    """A mixin for connections of urllib3 that registers each with the call that uses it."""

    sock: socket.socket | None
    used_by: Watch | None = None

    def putrequest(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - http.client's
        """Start a request, perhaps on an open connection."""
        _watchman.follow(self, _current.get())
        super().putrequest(*args, **more)  # type: ignore[misc]

    def getresponse(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - http.client's
        """Start to read. A connection for one request drops its socket before the body is read."""
        if self.used_by is not None:
            self.used_by.sock = self.sock
        return super().getresponse(*args, **more)  # type: ignore[misc]


def watched(pool: type[Any]) -> type[Any]:
    """Return a subclass of a urllib3 pool whose connections end at the deadline of their call."""
    kind: type[Any] = pool.ConnectionCls
    connection = type(f"Watched{kind.__name__}", (Watched, kind), {})
    return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": connection})


class _Watchman:
    """Watches the calls in progress. State changes under the lock; a shutdown never waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: set[Watch] = set()
        self._thread: threading.Thread | None = None
        self._looks_at = 0.0

    def add(self, watch: Watch) -> None:
        with self._changed:
            self._watches.add(watch)
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._looks_at = watch.ends
                self._thread = threading.Thread(
                    target=self._run, name="mailgres-deadlines", daemon=True
                )
                self._thread.start()
            elif watch.ends < self._looks_at:
                self._changed.notify()

    def remove(self, watch: Watch) -> None:
        with self._changed:
            self._watches.discard(watch)

    def follow(self, connection: Watched, watch: Watch | None) -> None:
        """Record which call uses a connection: the call before may not have ended yet."""
        with self._changed:
            connection.used_by = watch
            if watch is not None:
                watch.connection = connection
                if watch.expired:
                    raise TimeoutError("the call got a connection after its deadline")

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for watch in [each for each in self._watches if each.ends <= now]:
                    self._watches.discard(watch)
                    self._end(watch)
                # Calls start and end often: the thread sleeps until the first deadline.
                self._looks_at = min((each.ends for each in self._watches), default=now + _IDLE)
                self._changed.wait(max(self._looks_at - now, 0.0))

    @staticmethod
    def _end(watch: Watch) -> None:
        watch.expired = True
        connection = watch.connection
        if connection is None or connection.used_by is not watch:
            return
        if sock := watch.sock or connection.sock:
            with suppress(OSError):
                # Not the TLS shutdown: another thread uses the TLS object.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


_IDLE = 3600.0
"""Seconds between checks while no call is in progress."""

_watchman = _Watchman()
