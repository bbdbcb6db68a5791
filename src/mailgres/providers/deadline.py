"""Ends calls that take too long, however their answer comes.

The timeout of a socket begins anew with every piece that arrives. A server that sends a byte now
and then would keep a thread and its email for ever; so a thread of our own looks at the clock, and
shuts the connection of a call that is over its time down. Whoever reads from it finds its end.
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
    """A call: when it has to be over, whether it was not, and the connection that it uses."""

    __slots__ = ("connection", "ends", "expired", "sock")

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.expired = False
        self.connection: Watched | None = None
        self.sock: socket.socket | None = None


_current: ContextVar[Watch | None] = ContextVar("mailgres_watch", default=None)


@contextmanager
def within(seconds: float) -> Iterator[Watch]:
    """Give the calls of this thread so much time; afterwards `expired` says if it was too little.

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
    """A mixin for connections of urllib3: each tells the call that uses it."""

    sock: socket.socket | None
    used_by: Watch | None = None

    def putrequest(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - http.client's
        """Begin a request, maybe on a connection that is there already."""
        _watchman.follow(self, _current.get())
        super().putrequest(*args, **more)  # type: ignore[misc]

    def getresponse(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - http.client's
        """Begin to read. A connection that is used once lets go of its socket before the body."""
        if self.used_by is not None:
            self.used_by.sock = self.sock
        return super().getresponse(*args, **more)  # type: ignore[misc]


def watched(pool: type[Any]) -> type[Any]:
    """A pool of urllib3 like this one, whose connections end with the time of their call."""
    kind: type[Any] = pool.ConnectionCls
    connection = type(f"Watched{kind.__name__}", (Watched, kind), {})
    return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": connection})


class _Watchman:
    """Knows the calls under way. State changes under the lock; a shutdown never waits."""

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
        """Remember who uses a connection now: the call before may still be on its way out."""
        with self._changed:
            connection.used_by = watch
            if watch is not None:
                watch.connection = connection
                if watch.expired:
                    raise TimeoutError("the call came too late to a connection")

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for watch in [each for each in self._watches if each.ends <= now]:
                    self._watches.discard(watch)
                    self._end(watch)
                # Calls come and go all the time: it looks up when the first could be late.
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
                # Not as a TLS connection would: that is in another thread's hands.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


_IDLE = 3600.0
"""Seconds between looks while nothing is under way."""

_watchman = _Watchman()
