"""smtplib's client with a deadline for each reply.

The timeout of smtplib starts again with every byte. A server that sends a byte now and then, as
servers do to slow down spam, would block a thread and its email forever.
"""

from __future__ import annotations

import smtplib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

_PIECE = 8192
_SHORTEST = 0.05
_CODE = 4
_LONGEST_TEXT = 65536
_LARGEST_REPLY = 8 * 1024 * 1024


class Deadline(smtplib.SMTP):
    """The common part of both clients: `deadline`, in seconds of time.monotonic()."""

    def __init__(self, *args: Any, timeout: float, **more: Any) -> None:  # noqa: ANN401 - smtplib's
        self.deadline = time.monotonic() + timeout
        super().__init__(*args, **{**more, "timeout": timeout})

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply; if it does not end in time, the connection counts as broken."""
        if self.file is None and self.sock:
            self.file = _Lines(self, self.sock)
        if isinstance(self.file, _Lines):
            self.file.begin_reply()
        return super().getreply()

    def time_left(self) -> float:
        """Return the seconds until the deadline, at least a very small number."""
        return max(self.deadline - time.monotonic(), _SHORTEST)


class Client(Deadline):
    """A client for connections that start unencrypted."""


class TlsClient(Deadline, smtplib.SMTP_SSL):
    """A client for connections that are encrypted from the start."""


class _Lines:
    """The file object that smtplib reads replies from."""

    def __init__(self, client: Deadline, sock: socket.socket) -> None:
        self._client = client
        self._sock = sock
        self._read = bytearray()
        self._given = 0

    def begin_reply(self) -> None:
        """Start a new reply: its length is 0."""
        self._given = 0

    def readline(self, limit: int) -> bytes:
        """Return the next line, or less if the connection ended or the line is too long.

        Later lines of a long reply are cut to their code.
        """
        line = self._readline(limit)
        self._given += len(line)
        if self._given > _LARGEST_REPLY:
            raise smtplib.SMTPServerDisconnected("the reply does not end")
        return line if self._given <= _LONGEST_TEXT else line[:_CODE] + b"\r\n"

    def _readline(self, limit: int) -> bytes:
        while b"\n" not in self._read and len(self._read) < limit:
            if time.monotonic() > self._client.deadline + _SHORTEST:
                raise TimeoutError("the reply does not end")
            self._sock.settimeout(self._client.time_left())
            piece = self._sock.recv(_PIECE)
            if not piece:
                break
            self._read += piece
        end = min(self._read.find(b"\n") + 1 or len(self._read), limit)
        line = bytes(self._read[:end])
        del self._read[:end]
        return line

    def close(self) -> None:
        """Do nothing: smtplib closes the connection."""
