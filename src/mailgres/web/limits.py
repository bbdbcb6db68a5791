"""Bounds for pages, so that what people do there does not stop the rest of the process.

Pages wait for the database in threads of their own, and only so many requests run at a time: the
health of the service is answered by other threads, whatever the pages do.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from starlette.requests import Request

from mailgres.web.pool import MOST_CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

P = ParamSpec("P")
R = TypeVar("R")

MOST_REQUESTS = 60
"""Requests of one application at a time, live streams among them: fewer than the service takes."""
RETRY_SOON = {"Retry-After": "5"}
"""The header of an answer to a request for which there is no room."""
_THREADS = ThreadPoolExecutor(MOST_CONNECTIONS, thread_name_prefix="mailgres-web")


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function in a thread of the pages."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, partial(function, *args, **kwargs))


class AtATime:
    """Refuses requests beyond a number at a time; `refusal` makes the answer that they get."""

    def __init__(
        self, app: ASGIApp, refusal: Callable[[Request], Response], most: int = MOST_REQUESTS
    ) -> None:
        self._app = app
        self._refusal = refusal
        self._most = most
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if there is room."""
        if scope["type"] == "http" and self._inside >= self._most:
            await self._refusal(Request(scope))(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
