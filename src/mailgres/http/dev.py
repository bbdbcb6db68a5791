"""Serve the inbox of `mailgres dev` by itself, on a port of this machine that is free."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mailgres.http.server import MOST_WAITING, Server
from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.inbox import Inbox

HOST = "127.0.0.1"
PORT = 8726
"""The first port that is tried."""
TRIES = 20
"""Ports that are tried in a row; then any free one is taken."""
_LISTENS = "0A"


@dataclass(frozen=True)
class Address:
    """Where the inbox is; `taken_by`: who has the port that was asked for."""

    port: int
    taken_by: str | None = None


@contextmanager
def serving_inbox(inbox: Inbox, port: int = PORT) -> Iterator[Address]:
    """Serve the inbox on loopback during the `with` block."""
    listener, address = _listen(port)
    with listener:
        server = Server(inbox, listener, grace=0)
        server.start()
        try:
            yield address
        finally:
            inbox.close()
            server.stop()


def _listen(port: int) -> tuple[socket.socket, Address]:
    """Listen on the port, or on the next one that is free."""
    taken_by = None
    for number in (*range(port, min(port + TRIES, 65536)), 0):
        try:
            listener = socket.create_server((HOST, number), backlog=MOST_WAITING)
        except OSError:
            taken_by = taken_by or printable(owner_of(number) or "another program")
        else:
            return listener, Address(listener.getsockname()[1], taken_by)
    raise OSError  # port 0 is always free


def owner_of(port: int) -> str | None:
    """Return the program that listens on a port, with its process id, if we may see it."""
    inodes = {inode for inode, number in _listening() if number == port}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(_inode_of(link) in inodes for link in (process / "fd").iterdir()):
                return f"{_name_of(process)} (process {process.name})"
    return None


def _name_of(process: Path) -> str:
    """Return how a program was started, in short."""
    words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    shown = [Path(word).name for word in words[:3] if word and not word.startswith("-")]
    return " ".join(shown[1:] if shown and shown[0].startswith("python") else shown[:1]) or "?"


def _inode_of(link: Path) -> str:
    target = os.readlink(link)  # noqa: PTH115 - sockets have no path
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:") else ""


def _listening() -> Iterator[tuple[str, int]]:
    """Yield inode and port of the sockets that listen."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    yield fields[9], int(fields[1].rpartition(":")[2], 16)
