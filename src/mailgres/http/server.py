"""Run the application in a separate thread: the only module that imports uvicorn.

Signals are left to the main thread. A connection serves one request and is closed: callers come
once in a while, and so every time limit is one of a connection.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mailgres.errors import MailgresError
from mailgres.http.access import is_loopback
from mailgres.http.answers import DRAIN_SECONDS
from mailgres.http.app import Service, make_app
from mailgres.http.inbox import check_inbox, mount_inbox, open_inbox
from mailgres.http.page import make_page, mount_page, open_page
from mailgres.http.ready import Ready
from mailgres.http.recorder import Recorder
from mailgres.http.runs import Runs
from mailgres.http.webhooks import Webhooks
from mailgres.metrics import Exposition
from mailgres.webhooks.sns import check_library

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from mailgres.settings import Settings
    from mailgres.worker import Pipeline

log = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""Seconds that a caller may take to send the head of a request."""
LARGEST_HEAD = 16 * 1024
"""Largest request head in bytes."""
MOST_WAITING = 100
"""Connections without a complete head; one more closes the oldest."""
_HEAD_ENDS = re.compile(rb"\n\r?\n")
ANSWER_MARGIN_SECONDS = 5.0
"""Seconds beyond the grace of a run for sending its answer."""
HOW_TO_START = (
    "Set MAILGRES_SERVE_SECRET to at least 16 characters and let callers send the same:"
    " `openssl rand -hex 32` makes one."
)


def _raw(status: str, error: str, hint: str) -> bytes:
    """Return an answer to something that is not yet a request."""
    body = json.dumps({"error": error, "hint": hint}) + "\n"
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\ncache-control: no-store\r\n\r\n{body}".encode()


TOO_LARGE = _raw(
    "431 Request Header Fields Too Large",
    "the head of the request is too large",
    f"Send at most {LARGEST_HEAD} bytes.",
)


class LimitedProtocol(H11Protocol):
    """A connection that is closed if it sends no request in time, or too large a head.

    A normal caller sends the head immediately. So if many connections wait, the oldest are closed:
    slow callers do not block others.
    """

    _waiting: ClassVar[dict[LimitedProtocol, None]] = {}
    _head: bytes | None = b""
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and close the oldest connection if there are too many."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEAD_SECONDS, self._give_up)
        self._waiting[self] = None
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)
            oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._clock.cancel()
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, unless the head is too large."""
        if self._refused:
            return
        if self._head is not None and self._is_too_large(data):
            self._refuse_head()
            return
        super().data_received(data)
        if self._head is None:
            self._waiting.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Answer a caller that does not speak HTTP.

        The application may have the request already: mark the caller as disconnected, so that it
        does not answer as well.
        """
        cycle: RequestResponseCycle | None = self.cycle  # None until a head is complete
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)

    def _is_too_large(self, data: bytes) -> bool:
        """Add to the head; h11 limits only a head that arrives in pieces."""
        known = self._head or b""
        self._head = known + data[: LARGEST_HEAD + 1]
        end = _HEAD_ENDS.search(self._head, max(len(known) - 2, 0))
        too_large = (end.end() if end else len(self._head)) > LARGEST_HEAD
        if end:
            self._head = None
        return too_large

    def _refuse_head(self) -> None:
        """Answer, and go on reading for a moment: closed immediately, the answer would be lost."""
        self._refused = True
        self.transport.write(TOO_LARGE)
        self._clock.cancel()
        self._clock = self.loop.call_later(DRAIN_SECONDS, self.transport.close)

    def _give_up(self) -> None:
        cycle: object = self.cycle  # None until a head is complete
        if cycle is None:
            self.transport.close()


class Server:
    """The service of one process."""

    def __init__(self, app: Any, listener: socket.socket, grace: float) -> None:  # noqa: ANN401
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            # The caller's address is that of the connection, whatever the headers say.
            proxy_headers=False,
            headers=[("Connection", "close"), ("Cache-Control", "no-store")],
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_graceful_shutdown=int(grace + ANSWER_MARGIN_SECONDS),
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="mailgres-http", daemon=True)

    def start(self) -> None:
        """Start serving; return immediately."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more connections, and wait for the open ones."""
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])


@contextmanager
def serving(
    settings: Settings,
    pipeline: Pipeline,
    stopping: threading.Event,
    *,
    open_metrics: bool = False,
    inbox: bool = False,
    page: bool = False,
) -> Iterator[None]:
    """Serve during the `with` block.

    Once `stopping` is set, runs give back what they have not started.
    """
    check(settings, inbox=inbox, page=page)
    with _listen(settings.serve_host, settings.serve_port) as listener:
        if open_metrics and not is_loopback(listener.getsockname()[0]):
            raise MailgresError(
                "--open-metrics is for a service that only this machine can reach",
                "Set MAILGRES_METRICS_TOKEN, or let it listen on 127.0.0.1.",
            )
        opened = open_inbox(settings) if inbox else None
        opened_page = open_page(settings) if page else None
        runs = Runs(pipeline, stopping)
        service = Service(
            runs,
            Ready(pipeline.store),
            Exposition(pipeline.store),
            secret=settings.serve_secret or "",
            metrics_token=settings.metrics_token,
            open_metrics=open_metrics,
        )
        recorder = Recorder(pipeline.store)
        app = make_app(service, Webhooks(pipeline.live, recorder))
        if opened:
            mount_inbox(app, opened)
        if opened_page:
            mount_page(app, opened_page)
        server = Server(app, listener, settings.grace.total_seconds())
        server.start()
        _announce(listener)
        try:
            yield
        finally:
            stopping.set()
            if opened:
                opened.close()
            server.stop()
            if opened_page:
                opened_page.close()
            runs.close()
            recorder.close()


def check(settings: Settings, *, inbox: bool = False, page: bool = False) -> None:
    """Refuse to serve without a secret, or without what its webhooks need."""
    if not settings.serve_secret:
        raise MailgresError("The HTTP service has no secret", HOW_TO_START)
    if inbox:
        check_inbox(settings)
    if page:
        make_page(settings).close()
    for account in settings.receivers():
        if account.kind == "ses":
            check_library()
            if not account.options.get("webhook_topics"):
                raise MailgresError(
                    f"The webhook of {account.name} accepts no topic",
                    "Set ses_webhook_topics to the ARNs of the topics that SES publishes to.",
                )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=MOST_WAITING)
    except OSError as error:
        raise MailgresError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}",
            "Choose another address with MAILGRES_SERVE_HOST and MAILGRES_SERVE_PORT.",
        ) from None


def _announce(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    reported = {"action": "serve", "host": host, "port": port}
    log.info("serving on http://%s:%s", shown, port, extra=reported)
