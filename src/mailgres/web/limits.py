"""Bounds for pages, so that what people do there does not stop the rest of the process.

Pages wait for the database in threads of their own, and only so many requests run at a time: the
health of the service is answered by other threads, whatever the pages do.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from starlette.responses import PlainTextResponse

from mailgres.web.pool import MOST_CONNECTIONS
from mailgres.web.rendering import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

P = ParamSpec("P")
R = TypeVar("R")

MOST_REQUESTS = 60
"""Requests of one application at a time, live streams among them: fewer than the service takes."""
_THREADS = ThreadPoolExecutor(MOST_CONNECTIONS, thread_name_prefix="mailgres-web")


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function in a thread of the pages."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, partial(function, *args, **kwargs))


class AtATime:
    """Refuses requests beyond a number at a time."""

    def __init__(self, app: ASGIApp, most: int = MOST_REQUESTS) -> None:
        self._app = app
        self._most = most
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if there is room."""
        if self._inside >= self._most:
            refusal = {**HEADERS, "Retry-After": "5"}
            text = "Too many requests at once. Try again in a moment.\n"
            await PlainTextResponse(text, 503, refusal)(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
