"""A line to a database that a test can cut: connections break, and new ones are refused."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Cut:
    """Forwards connections to the server of a URL, at a port of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        user = f"{parts.username}:{parts.password}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{self.port}").geturl()

    def __enter__(self) -> Self:
        self._accept(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self.off()

    def off(self) -> None:
        """Cut the line."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            lines, self._open = self._open, set()
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def on(self) -> None:
        """Open the line again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._accept(self._listener)

    def _accept(self, listener: socket.socket) -> None:
        threading.Thread(target=self._run, args=(listener,), daemon=True).start()

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    try:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
    finally:
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
