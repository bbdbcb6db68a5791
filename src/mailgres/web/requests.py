"""What requests contain: forms, times, ids; and where a page is, below any path."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_FORM_BYTES = 16 * 1024
MOST_FIELDS = 20
FORM_SECONDS = 10.0
"""Seconds that a form may take to arrive."""


class NotAllowed(Exception):
    """The caller has no session; `reason`: it may not even sign in."""

    def __init__(self, reason: str = "", *, wrong: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wrong = wrong


def relative(request: Request) -> str:
    """Return the way from a page to the first one: pages work below any path."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return "../" * (path.count("/") - 1) or "./"


async def with_slash(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request on; links are relative to an address with a slash at the end."""
    root = scope.get("root_path", "")
    if scope["type"] == "http" and root and scope["path"] == root:
        await RedirectResponse(root.rpartition("/")[2] + "/")(scope, receive, send)
    else:
        await app(scope, receive, send)


async def read_form(request: Request, most_bytes: int = MOST_FORM_BYTES) -> dict[str, str]:
    """Read a form, within limits of size and time."""
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408) from None
    try:
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        raise HTTPException(400, "The form is not valid.") from None
    return {name: values[0] for name, values in given.items()}


def as_time(given: str | None) -> datetime | None:
    """Return a time with a zone, or None."""
    try:
        found = datetime.fromisoformat(given) if given else None
    except ValueError:
        return None
    return found if found and found.tzinfo else None


def as_uuid(given: str | None) -> UUID | None:
    """Return an id, or None."""
    try:
        return UUID(given) if given else None
    except ValueError:
        return None
