"""Answers: JSON, also for errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Receive, Scope, Send

DRAIN_SECONDS = 2.0
"""Seconds for which a refused caller may go on sending."""


class Refused(Exception):
    """The request gets an error: what is wrong, and what to do."""

    def __init__(
        self, status: int, error: str, hint: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = dict(headers or {})

    def answer(self) -> Refusal:
        """Return the response."""
        content = {"error": self.error, "hint": self.hint}
        return Refusal(content, status_code=self.status, headers=self.headers)


class Answer(JSONResponse):
    """JSON that ends with a line break, for callers at a terminal."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - the signature is starlette's
        """Encode the content."""
        return super().render(content) + b"\n"


class Refusal(Answer):
    """An error that is sent before the body was read.

    The rest of the body is read and discarded for a moment: a connection closed before that would
    be reset, and the answer lost with it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer immediately, then read to the end."""

        async def then_drain(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({**message, "more_body": True})
            await _drain(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await super().__call__(scope, receive, then_drain)


async def _drain(receive: Receive) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message["more_body"]:
                pass
    except TimeoutError:
        return
