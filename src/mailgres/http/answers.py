"""Answers: JSON, also for errors; and request bodies, read within limits of size and time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

LARGEST_BODY = 16 * 1024
"""Largest request body in bytes."""
BODY_SECONDS = 10.0
"""Seconds that a body may take to arrive."""
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


async def read_body(request: Request, largest: int = LARGEST_BODY) -> bytes:
    """Return the body; refuse it if it is too large, as soon as that is known, or too slow."""
    too_large = Refused(413, "the body is too large", f"Send at most {largest} bytes.")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > largest:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > largest:
                    raise too_large
    except TimeoutError:
        hint = f"Send it within {BODY_SECONDS:g} seconds."
        raise Refused(408, "the body did not arrive in time", hint) from None
    except ClientDisconnect:
        raise Refused(400, "the body is not complete", "Send all of it.") from None
    return bytes(body)


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; no body is an empty object."""
    body = await read_body(request)
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON", EXAMPLE) from None
    if not isinstance(found, dict):
        raise Refused(400, "the body is not a JSON object", EXAMPLE)
    return found


EXAMPLE = 'Send nothing, or an object such as {"batchSize": 100}.'
