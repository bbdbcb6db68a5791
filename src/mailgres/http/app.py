"""The endpoints."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from mailgres import __version__
from mailgres.http.access import has_bearer, is_local
from mailgres.http.answers import Answer, Refused
from mailgres.http.bodies import read_object
from mailgres.safe_errors import where

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mailgres.http.ready import Ready
    from mailgres.http.runs import Runs
    from mailgres.http.webhooks import Webhooks
    from mailgres.metrics import Exposition

log = logging.getLogger(__name__)

PROCESS = "/functions/v1/process-email-queue"
LARGEST_BATCH = 1000
MOST_REQUESTS = 100
"""Concurrent requests, not counting those for health."""
HOW_TO_OPEN = (
    "Set MAILGRES_METRICS_TOKEN and send it as a bearer token; for local access without a token,"
    " start the service with --open-metrics."
)
SAMPLE_SECONDS = 60.0
"""Seconds in which at most one refusal of a kind is logged."""
_WRONG, _OUR_FAULT = 400, 500


class Service:
    """The handlers of the endpoints."""

    def __init__(
        self,
        runs: Runs,
        ready: Ready,
        metrics: Exposition,
        *,
        secret: str,
        metrics_token: str | None,
        open_metrics: bool = False,
    ) -> None:
        self._runs = runs
        self._ready = ready
        self._metrics = metrics
        self._secret = secret
        self._metrics_token = metrics_token
        self._open_metrics = open_metrics

    async def process(self, request: Request) -> Response:
        """Send due emails: one claim."""
        if not has_bearer(request, self._secret):
            raise _unauthorized("serve_secret")
        size = batch_size(await read_object(request))
        summary = await self._runs.run(size)
        return Answer(summary.as_dict())

    async def healthz(self, _request: Request) -> Response:
        """Answer that this process is alive."""
        return Answer({"status": "ok", "version": __version__})

    async def readyz(self, _request: Request) -> Response:
        """Answer whether this process can work."""
        found = await asyncio.to_thread(self._ready.ask)
        return Answer(found.as_dict(), 503 if found.reason else 200)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        if not (self._open_metrics and is_local(request)):
            if not self._metrics_token:
                raise Refused(401, "the metrics need a token", HOW_TO_OPEN)
            if not has_bearer(request, self._metrics_token):
                raise _unauthorized("metrics_token")
        text, kind = await asyncio.to_thread(self._metrics.text)
        return Response(text, headers={"Content-Type": kind})


def _unauthorized(setting: str) -> Refused:
    hint = f"Send Authorization: Bearer and the secret in the setting {setting}."
    return Refused(
        401, "the bearer token is missing or wrong", hint, {"WWW-Authenticate": "Bearer"}
    )


def batch_size(given: dict[str, Any]) -> int | None:
    """Return how many emails the caller wants to claim; None leaves it to the settings.

    Other keys are ignored: schedulers send the time and more.
    """
    size = given.get("batchSize")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_BATCH:
        hint = f"Give a whole number from 1 to {LARGEST_BATCH}, or nothing."
        raise Refused(400, "batchSize is not a number of emails", hint)
    return size


def make_app(service: Service, webhooks: Webhooks | None = None) -> Starlette:
    """Return the application."""
    app = Starlette(
        routes=[
            Route(PROCESS, service.process, methods=["POST"]),
            Route("/healthz", service.healthz),
            Route("/readyz", service.readyz),
            Route("/metrics", service.metrics),
            *(webhooks.routes() if webhooks else ()),
        ],
        exception_handlers={Refused: _refuse, HTTPException: _refuse_http, Exception: _fail},
    )
    app.router.redirect_slashes = False
    app.add_middleware(RequestLimit)
    app.add_middleware(RequestLog)
    return app


def endpoints(app: Starlette) -> list[str]:
    """Return the method and the path of each endpoint."""
    routes = [route for route in app.routes if isinstance(route, Route)]
    return [f"{max(route.methods - {'HEAD'})} {route.path}" for route in routes if route.methods]


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - registered for it
    return error.answer()


async def _refuse_http(request: Request, error: Exception) -> Response:
    """Answer what starlette refuses: an unknown path or method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    hint = f"There are {', '.join(endpoints(request.app))}."
    found = Refused(error.status_code, str(error.detail).lower(), hint, error.headers)
    return found.answer()


async def _fail(_request: Request, error: Exception) -> Response:
    """Answer any other error; the caller sees nothing of it."""
    log.error("a request failed: %s", where(error), extra={"action": "http"})
    return Refused(500, "internal error", "The log of the service says where.").answer()


class RequestLimit:
    """Refuses requests beyond a number at a time, so that health is always answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if there is room."""
        if scope["type"] != "http" or (scope["path"], scope["method"]) == ("/healthz", "GET"):
            await self._app(scope, receive, send)
        elif self._inside >= MOST_REQUESTS:
            # Its body is not read to the end, as with other refusals: that would take time.
            content = {"error": "too many requests at once", "hint": "Call again later."}
            answer = Answer(content, status_code=503, headers={"Retry-After": "5"})
            await answer(scope, receive, send)
        else:
            self._inside += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._inside -= 1


class Sampler:
    """Chooses which refusals are logged: the first of a kind, then one a minute with a count.

    Callers that call too often are refused as often, and so are strangers: that floods a log.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, int], float] = {}
        self._suppressed: Counter[tuple[str, int]] = Counter()

    def take(self, path: str, status: int) -> int | None:
        """Return how many of this kind were skipped since the last one; None: skip this one."""
        now, kind = self._clock(), (path, status)
        if now - self._last.get(kind, -math.inf) < SAMPLE_SECONDS:
            self._suppressed[kind] += 1
            return None
        self._last[kind] = now
        return self._suppressed.pop(kind, 0)


def _pattern(scope: Scope) -> str:
    """Return the path as a route has it: a real one may contain a secret, or anything at all."""
    routes = (route for route in scope["app"].routes if isinstance(route, Route))
    known = (route.path for route in routes if route.path_regex.match(scope["path"]))
    return next(known, "unknown")


class RequestLog:
    """Logs requests, one line each: endpoint, status, duration."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._sampler = Sampler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and watch the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            self._log_request(scope, status, time.monotonic() - start)

    def _log_request(self, scope: Scope, status: int, seconds: float) -> None:
        path = _pattern(scope)
        level = logging.WARNING if status >= _WRONG else logging.DEBUG
        if path == PROCESS and status < _WRONG:
            level = logging.INFO
        reported = {"action": "http", "path": path, "status": status, "seconds": round(seconds, 3)}
        if status >= _WRONG and status != _OUR_FAULT:
            suppressed = self._sampler.take(path, status)
            if suppressed is None:
                return
            reported["suppressed"] = suppressed
        log.log(level, "%s answered with %s", path, status, extra=reported)
