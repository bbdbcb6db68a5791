"""What requests contain: forms, times, ids; and where a page is, below any path."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse

from mailgres.web.rendering import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_FORM_BYTES = 16 * 1024
MOST_FIELDS = 20
FORM_SECONDS = 10.0
"""Seconds that a form may take to arrive."""
MOST_READ_BYTES = 8 * 1024 * 1024
"""Bytes of a body that is too long which are read nevertheless: a caller that is still sending
would not get the answer."""
_MOST_DIGITS = 18


class NotAllowed(Exception):
    """The caller has no session; `reason`: it may not even sign in."""

    def __init__(self, reason: str = "", *, wrong: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wrong = wrong


def relative(request: Request) -> str:
    """Return the way from a page to the first one: pages work below any path."""
    return "../" * (below_root(request).count("/") - 1) or "./"


def below_root(request: Request) -> str:
    """Return the path of a request below that of its application."""
    return str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))


async def with_slash(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request on; links are relative to an address with a slash at the end."""
    root = scope.get("root_path", "")
    if scope["type"] == "http" and root and scope["path"] == root:
        await slash_added(scope)(scope, receive, send)
    else:
        await app(scope, receive, send)


def slash_added(scope: Scope) -> RedirectResponse:
    """Return the way to the same address with a slash at the end, and with its parameters."""
    name = quote(scope["path"].rpartition("/")[2])
    query = scope.get("query_string", b"").decode("latin-1")
    return RedirectResponse(f"./{name}/{'?' if query else ''}{query}", headers=HEADERS)


def cookie_path(request: Request) -> str:
    """Return the path of our cookies, as a browser writes it."""
    return quote(request.scope.get("root_path", ""), safe="/!$&'()*+,:=@[]^|") or "/"


async def read_body(request: Request, most_bytes: int = MOST_FORM_BYTES) -> bytes:
    """Read what a request brings, within limits of size and time."""
    body, size = b"", 0
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MOST_READ_BYTES:
                    break
                if size <= most_bytes:
                    body += chunk
    except TimeoutError:
        raise HTTPException(408, "The request did not arrive in time.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The request is not complete.") from None
    if size > most_bytes:
        raise HTTPException(413, f"The body is longer than {most_bytes} bytes.")
    return body


async def read_form(request: Request, most_bytes: int = MOST_FORM_BYTES) -> dict[str, str]:
    """Read a form, within limits of size and time."""
    body = await read_body(request, most_bytes)
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


def as_number(given: str) -> int | None:
    """Return a number of a bounded length, or None: Python refuses to read very long ones."""
    is_one = given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS
    return int(given) if is_one else None


def path_number(request: Request, name: str) -> int:
    """Return a number of the path; what is not one is not here."""
    found = as_number(request.path_params[name])
    if found is None:
        raise HTTPException(404)
    return found


def as_uuid(given: str | None) -> UUID | None:
    """Return an id, or None."""
    try:
        return UUID(given) if given else None
    except ValueError:
        return None
