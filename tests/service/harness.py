"""A real `mailgres serve` process, and callers with real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from worker.harness import DEADLINE, Process, WorkerHarness, until

SECRET = "a-secret-for-the-tests"
TOKEN = "a-token-for-the-tests"
PATH = "/functions/v1/process-email-queue"
BEARER = f"Authorization: Bearer {SECRET}"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


@dataclass(frozen=True)
class Site:
    """The service, as its callers see it."""

    port: int
    process: Process

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE)

    def send(self, connection: socket.socket, *parts: bytes) -> None:
        """Send for as long as the other side listens."""
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def raw(self, *parts: bytes) -> Answer:
        """Send bytes, and read what comes back until the connection ends."""
        with self.open() as connection:
            self.send(connection, *parts)
            return read(connection)

    def ask(
        self, method: str, path: str, *headers: str, body: bytes = b"", host: str = "127.0.0.1"
    ) -> Answer:
        return self.raw(request(method, path, *headers, body=body, host=host))

    def get(self, path: str, *headers: str, host: str = "127.0.0.1") -> Answer:
        return self.ask("GET", path, *headers, host=host)

    def trigger(self, body: object = None) -> Answer:
        """Ask for a run, with the secret."""
        text = b"" if body is None else json.dumps(body).encode()
        return self.ask("POST", PATH, BEARER, body=text)


def request(
    method: str, path: str, *headers: str, body: bytes = b"", host: str = "127.0.0.1"
) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def read(connection: socket.socket) -> Answer:
    """Read an answer to the end of the connection; status 0 if there is none."""
    received = b""
    while not _complete(received):
        try:
            more = connection.recv(65536)
        except ConnectionResetError:
            break
        if not more:
            break
        received += more
    if not received:
        return Answer(0, {}, b"")
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Answer(int(first.split()[1]), headers, body)


def _complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if end and name == b"content-length":
            return len(body) >= int(value)
    return False


@contextmanager
def site(harness: WorkerHarness, *arguments: str, **variables: str) -> Iterator[Site]:
    """Run the service for a while; variables without their prefix."""
    given = {"serve_port": "0", "serve_secret": SECRET, **variables}
    harness.variables |= {f"MAILGRES_{name.upper()}": text for name, text in given.items()}
    with harness.script(*(arguments or ("serve",))) as process:
        until(lambda: _port(process) or not process.alive(), "the service listens")
        port = _port(process)
        assert port, process.log
        yield Site(port, process)


def _port(process: Process) -> int | None:
    lines = (json.loads(line) for line in process.log.splitlines() if line.endswith("}"))
    return next((line["port"] for line in lines if line.get("action") == "serve"), None)
