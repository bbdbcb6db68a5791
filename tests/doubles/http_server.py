"""A minimal HTTP server: a double must be faster than its clients."""

from __future__ import annotations

import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """An answer. `reset`: the connection breaks instead; `drip`: seconds between its bytes."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    reset: bool = False
    drip: float = 0.0


Answering = Callable[[str, str, dict[str, str], bytes], Reply]
"""Method, path, headers by their names in lower case, body."""


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Answering, connected: Callable[[], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answer, self.connected = answer, connected
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.open: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        self.server.connected()
        self.server.open.add(self.connection)
        try:
            while self._one():
                pass
        finally:
            self.server.open.discard(self.connection)

    def _one(self) -> bool:
        line = self.rfile.readline(65536)
        if not line.endswith(b"\n"):
            return False
        method, path, _ = line.decode("ascii").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self.rfile.readline(65536)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed
            return False
        reply = self.server.answer(method, path, headers, body)
        if reply.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return False
        self._write(reply)
        return headers.get("connection", "").lower() != "close"

    def _write(self, reply: Reply) -> None:
        head = {
            "content-type": reply.content_type,
            "content-length": str(len(reply.body)),
            **reply.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        start = f"HTTP/1.1 {reply.status} Answer\r\n{lines}\r\n".encode("latin-1")
        if not reply.drip:
            self.wfile.write(start + reply.body)
            return
        self.wfile.write(start)
        for number in range(len(reply.body)):
            self.wfile.write(reply.body[number : number + 1])
            time.sleep(reply.drip)


@contextmanager
def serving(answer: Answering, connected: Callable[[], None] = lambda: None) -> Iterator[str]:
    """Answer in threads of this process; yield the URL. `connected` is called per connection."""
    with Server(answer, connected) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            for each in list(server.open):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            thread.join()
