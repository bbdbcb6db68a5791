"""Runs the application in a thread of its own: the only module that knows uvicorn.

Signals are the main thread's. A connection serves one request and is closed: callers come once in a
while, and so every limit of time is one of a connection.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mailgres.errors import MailgresError
from mailgres.http.access import is_loopback
from mailgres.http.app import Service, make_app
from mailgres.http.ready import Ready
from mailgres.http.runs import Runs
from mailgres.metrics import Exposition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from mailgres.settings import Settings
    from mailgres.worker import Pipeline

log = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""How long a caller may take to send the head of his request."""
LARGEST_HEAD = 16 * 1024
MOST_CONNECTIONS = 100
AFTER_GRACE = 5.0
"""Seconds beyond the grace of a run for its answer to be sent."""
HOW_TO_START = (
    "Set MAILGRES_SERVE_SECRET to at least 16 characters, the same that callers send:"
    " `openssl rand -hex 32` makes one."
)


class Impatient(H11Protocol):
    """A connection that is closed if no request comes of it in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._clock.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        cycle: object = self.cycle  # None until a head has come whole
        if cycle is None:
            self.transport.close()


class Server:
    """The service of one process."""

    def __init__(self, app: Any, listener: socket.socket, grace: float) -> None:  # noqa: ANN401
        config = uvicorn.Config(
            app,
            http=Impatient,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            # Callers' addresses are those of their connections, whatever headers say.
            proxy_headers=False,
            headers=[("Connection", "close"), ("Cache-Control", "no-store")],
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_graceful_shutdown=int(grace + AFTER_GRACE),
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="mailgres-http", daemon=True)

    def start(self) -> None:
        """Serve from now on; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections, and wait for those that there are."""
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])


@contextmanager
def serving(settings: Settings, pipeline: Pipeline, stopping: threading.Event) -> Iterator[None]:
    """Serve meanwhile.

    `stopping` is set by whoever ends it: then runs give back what they have not begun.
    """
    check(settings)
    with _listen(settings.serve_host, settings.serve_port) as listener:
        runs = Runs(pipeline, stopping)
        service = Service(
            runs,
            Ready(pipeline.store),
            Exposition(pipeline.store),
            secret=settings.serve_secret or "",
            metrics_token=settings.metrics_token,
        )
        server = Server(make_app(service), listener, settings.grace.total_seconds())
        server.start()
        _announce(listener)
        warn_of_metrics(listener.getsockname()[0], settings.metrics_token)
        try:
            yield
        finally:
            stopping.set()
            server.stop()
            runs.close()


def check(settings: Settings) -> None:
    """Refuse to serve whoever comes."""
    if not settings.serve_secret:
        raise MailgresError("The HTTP service has no secret", HOW_TO_START)


def warn_of_metrics(address: str, token: str | None) -> None:
    """Tell who lets others in that a proxy here would show them the metrics."""
    if not token and not is_loopback(address):
        log.warning(
            "without metrics_token whoever a proxy on this machine serves may read the metrics:"
            " set MAILGRES_METRICS_TOKEN",
            extra={"action": "serve.metrics"},
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        raise MailgresError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}",
            "Choose another address with MAILGRES_SERVE_HOST and MAILGRES_SERVE_PORT.",
        ) from None


def _announce(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    told = {"action": "serve", "host": host, "port": port}
    log.info("serving on http://%s:%s", shown, port, extra=told)
