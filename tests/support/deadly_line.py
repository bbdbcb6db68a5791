"""A line to a database on which a program is killed while it sends a chosen statement."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from typing import Self
from urllib.parse import urlsplit

_STATEMENT = re.compile(rb"(?:Q....|P....[^\0]*\0)(?P<text>[^\0]*)", re.DOTALL)
"""The messages that begin a statement: a simple query, and Parse, which gives it a name."""
_READS = re.compile(
    rb"\s*(?:SELECT(?! mailgres\.| pg_catalog\.pg_\w*advisory)"
    rb"|SHOW|SET|BEGIN|SAVEPOINT|RELEASE|ROLLBACK)\b",
    re.IGNORECASE,
)
"""A statement that changes nothing and locks nothing."""


class DeadlyLine:
    """Forwards connections to the server of a URL, and kills their program at one statement.

    Only statements that change or lock something are counted. It is killed when the statement was
    forwarded, without waiting for the answer. The server learns of it as it does when a program is
    killed: the connection ends.
    """

    def __init__(self, url: str, statement: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._left = statement
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.username}:{parts.password}@" if parts.username else ""
        # Encrypted, the statements could not be counted.
        self.url = parts._replace(
            netloc=f"{user}127.0.0.1:{port}", query="sslmode=disable&gssencmode=disable"
        ).geturl()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def run(self, start: Callable[[str], subprocess.Popen[str]]) -> int:
        """Run a program that connects to the URL, and return how it ended."""
        with start(self.url) as self._program:
            _, said = self._program.communicate()
        assert self._program.returncode in {0, -9}, said
        return self._program.returncode

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                threading.Thread(target=self._statements, args=(near, far), daemon=True).start()
                threading.Thread(target=_answers, args=(far, near), daemon=True).start()

    def _statements(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, suppress(OSError), near.makefile("rb") as sent:
            far.sendall(_rest(sent, b""))  # the first message has no type
            while message := _message(sent):
                deadly = self._is_counted_down(message)
                far.sendall(message)
                if deadly:
                    _send_rest(sent, far, message)
                    self._kill()
                    break
            # Not only closed: another thread still reads from it.
            far.shutdown(socket.SHUT_RDWR)

    def _is_counted_down(self, message: bytes) -> bool:
        found = _STATEMENT.match(message)
        if found is None or _READS.match(found["text"]):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def _kill(self) -> None:
        self._program.kill()
        self._program.wait()


def _message(sent: BufferedReader) -> bytes:
    """Read a message of the client: a type, a length, and the rest."""
    kind = sent.read(1)
    return _rest(sent, kind) if kind else b""


def _rest(sent: BufferedReader, kind: bytes) -> bytes:
    size = sent.read(4)
    return kind + size + sent.read(int.from_bytes(size, "big") - len(size))


def _send_rest(sent: BufferedReader, far: socket.socket, message: bytes) -> None:
    """Forward what belongs to a statement: Parse is followed by others, the last is Sync."""
    while message[:1] not in b"QS":
        message = _message(sent)
        far.sendall(message)


def _answers(far: socket.socket, near: socket.socket) -> None:
    with suppress(OSError):
        while data := far.recv(65536):
            near.sendall(data)
        near.shutdown(socket.SHUT_WR)
