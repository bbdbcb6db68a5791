"""A call ends in time, however its answer comes: each piece in time, the whole never."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from doubles.ses import environ
from mailgres.providers.base import Provider
from mailgres.providers.deadline import Watched, within
from mailgres.providers.resend.provider import ResendProvider
from mailgres.providers.ses.provider import SesProvider
from providers.mails import mail
from worker.harness import until

TIMEOUT_SECONDS = 1.0
BETWEEN = TIMEOUT_SECONDS / 20

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
DRIPS: dict[str, tuple[bytes, bytes]] = {
    "the status line": (b"HTTP/1.1 200 ", b"O"),
    "one header": (HEAD + b"x-slow: ", b"x"),
    "the size of a chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"0"),
    "the body": (HEAD + b"content-length: 100000\r\n\r\n", b" "),
    "a body without an end": (HEAD + b"connection: close\r\n\r\n", b" "),
}
"""What comes at once, and what comes again and again, a piece at a time."""


@contextmanager
def dripping(start: bytes, piece: bytes) -> Iterator[str]:
    """A server that answers each request like this, until its client hangs up; the URL."""
    done = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(start)
                while not done.wait(BETWEEN):
                    connection.sendall(piece)
            except OSError:  # it has hung up
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def resend(url: str) -> Provider:
    return ResendProvider("re_key", url, timeout=TIMEOUT_SECONDS)


def ses(url: str) -> Provider:
    return SesProvider("eu-west-1", endpoint_url=url, timeout=TIMEOUT_SECONDS)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_SESV2", raising=False)


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize(
    ("opened", "code"), [(resend, "no_answer"), (ses, "ReadTimeoutError")], ids=["resend", "ses"]
)
def test_a_call_ends_at_its_deadline_however_slowly_bytes_arrive(
    opened: Callable[[str], Provider], code: str, drip: str
) -> None:
    """It may have been sent, and the thread is free again."""
    with dripping(*DRIPS[drip]) as url:
        provider = opened(url)
        (result,) = provider.send([mail()])
        provider.close()
    assert (result.verdict, result.code) == ("ambiguous", code)


@pytest.mark.parametrize("opened", [resend, ses])
def test_a_check_ends_at_its_deadline(opened: Callable[[str], Provider]) -> None:
    with dripping(*DRIPS["one header"]) as url:
        provider = opened(url)
        assert provider.check().verdict == "ambiguous"
        provider.close()


class Plain:
    """As much of a connection as is needed."""

    sock: socket.socket | None = None

    def putrequest(self) -> None:
        """Nothing is sent."""


class Connection(Watched, Plain):
    """One that is watched."""


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_connection_belongs_to_the_call_that_uses_it_now(*, taken_over: bool) -> None:
    """A call beyond its deadline does not end the next call on the same connection."""
    connection = Connection()
    mine, theirs = socket.socketpair()
    with mine, theirs:
        connection.sock = mine
        with within(0.05) as first:
            connection.putrequest()
            with within(600):
                if taken_over:
                    connection.putrequest()
                until(lambda: first.expired, "the first is over its time")
                if not taken_over:
                    assert theirs.recv(1) == b""
                    return
                mine.sendall(b"x")
                assert theirs.recv(1) == b"x"


def test_a_call_whose_deadline_has_passed_does_not_connect() -> None:
    with within(0.01) as watch:
        until(lambda: watch.expired, "it is over its time")
        with pytest.raises(TimeoutError):
            Connection().putrequest()
