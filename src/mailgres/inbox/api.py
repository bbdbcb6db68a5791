"""The inbox as JSON, for end-to-end tests in any language.

A caller sends the secret of the inbox as a bearer token. Cookies do not count, so no page of
another site can use a browser's session, and no CSRF token is needed.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.inbox.links import find_links
from mailgres.values.kinds import BadValue, Duration
from mailgres.web import HEADERS, in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.inbox.access import Access
    from mailgres.inbox.store import InboxStore

    Handler = Callable[[Request], Awaitable[Any]]

POLL_SECONDS = 0.1
"""Seconds between two looks at the database while a request waits."""
MOST_WAITING = 20
"""Requests that wait at the same time."""
MOST_BODY_BYTES = 16 * 1024
MOST_EMAILS = 200
WAIT = Duration("0s", "30s")
_FILTERS = {"to", "template", "subject", "after"}
_UNAVAILABLE, _UNAUTHORIZED, _BAD = 503, 401, 400


class Api:
    """The handlers of the JSON API."""

    def __init__(self, store: InboxStore, access: Access) -> None:
        self._store = store
        self._access = access
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Return the routes; every caller is checked first."""
        one = "/api/inbox/{id:uuid}"
        return [
            Route("/api/inbox", self._checked(self.list_emails), methods=["GET"]),
            Route("/api/inbox", self._checked(self.delete_all), methods=["DELETE"]),
            Route("/api/inbox/latest", self._checked(self.latest), methods=["GET"]),
            Route("/api/inbox/faults", self._checked(self.add_fault), methods=["POST"]),
            Route(one, self._checked(self.show), methods=["GET"]),
            Route(one, self._checked(self.delete), methods=["DELETE"]),
        ]

    async def list_emails(self, request: Request) -> object:
        """Return the captured emails that match, newest first."""
        wanted = _wanted(request, "limit")
        limit = _limit(request)
        found = await in_thread(self._find, wanted)
        return {"emails": [_summary(row) for row in found[:limit]]}

    async def latest(self, request: Request) -> object:
        """Return the newest captured email that matches; wait for one if there is none."""
        wanted = _wanted(request, "wait")
        ends = time.monotonic() + _wait(request)
        if self._waiting >= MOST_WAITING:
            raise HTTPException(_UNAVAILABLE, "Too many requests are waiting: try again later.")
        self._waiting += 1
        try:
            while True:
                for row in (await in_thread(self._find, wanted))[:1]:
                    return await self._email(row["queue_id"])
                if time.monotonic() >= ends or await request.is_disconnected():
                    raise HTTPException(404, "No captured email matches.")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._waiting -= 1

    async def show(self, request: Request) -> object:
        """Return one email with its content."""
        return await self._email(request.path_params["id"])

    async def delete(self, request: Request) -> object:
        """Delete one email."""
        return {"deleted": await in_thread(self._store.delete, [request.path_params["id"]])}

    async def delete_all(self, _request: Request) -> object:
        """Delete what the inbox has."""
        return {"deleted": await in_thread(self._store.delete, None)}

    async def add_fault(self, request: Request) -> object:
        """Let the next email to an address, of a template, or at all fail."""
        given = await _body(request)
        texts = [given.pop(name, None) for name in ("fault", "to", "template")]
        if given or not all(text is None or isinstance(text, str) for text in texts):
            raise HTTPException(_BAD, "Give fault, and optionally to and template, as texts.")
        await in_thread(self._store.set_fault, texts[0] or "", texts[1], texts[2])
        return {"fault": texts[0], "to": texts[1], "template": texts[2]}

    def _find(self, wanted: dict[str, str]) -> list[dict[str, Any]]:
        search = wanted.get("to") or wanted.get("subject") or wanted.get("template")
        rows = self._store.emails(search, None, MOST_EMAILS)
        return [row for row in rows if row["captured"] and _matches(row, wanted)]

    async def _email(self, queue_id: UUID) -> dict[str, Any]:
        found = await in_thread(self._store.email, queue_id)
        if found is None or found["message"] is None:
            raise HTTPException(404, "This email is not in the inbox.")
        return _whole(queue_id, found)

    def _checked(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Let only callers with the secret in, and answer errors as JSON."""

        async def answer(request: Request) -> Response:
            if not self._access.is_expected_host(request):
                return _problem(403, "The inbox does not answer under this host name.")
            if not self._access.has_bearer(request):
                return _problem(
                    _UNAUTHORIZED,
                    "Send the secret of the inbox: Authorization: Bearer …",
                    {"WWW-Authenticate": "Bearer"},
                )
            try:
                return JSONResponse(await handler(request), headers=HEADERS)
            except HTTPException as error:
                return _problem(error.status_code, str(error.detail))
            except DatabaseUnreachable as error:
                return _problem(_UNAVAILABLE, error.message, {"Retry-After": "2"})
            except MailgresError as error:
                return _problem(_BAD, error.message)

        return answer


def _problem(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, {**HEADERS, **(headers or {})})


def _wanted(request: Request, *others: str) -> dict[str, str]:
    """Return the filters; refuse unknown ones, which would match everything."""
    given = dict(request.query_params)
    if unknown := sorted(given.keys() - _FILTERS - set(others)):
        known = ", ".join(sorted(_FILTERS | set(others)))
        raise HTTPException(_BAD, f"There is no parameter {unknown[0]!r}: give {known}.")
    if "after" in given:
        try:
            datetime.fromisoformat(given["after"]).astimezone()
        except (ValueError, OverflowError):
            raise HTTPException(_BAD, "after is not a time in ISO 8601.") from None
    return {name: value for name, value in given.items() if name in _FILTERS and value}


def _wait(request: Request) -> float:
    try:
        return WAIT.parse(request.query_params.get("wait", "0s")).total_seconds()
    except BadValue as error:
        raise HTTPException(_BAD, f"wait: {error}. Give {WAIT.allowed}.") from None


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", "50")
    if not given.isdecimal() or not 1 <= int(given) <= MOST_EMAILS:
        raise HTTPException(_BAD, f"limit is not a number from 1 to {MOST_EMAILS}.")
    return int(given)


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY_BYTES:
            raise HTTPException(413, f"The body is longer than {MOST_BODY_BYTES} bytes.")
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(_BAD, "The body is not a JSON object.")
    return given


def _matches(row: dict[str, Any], wanted: dict[str, str]) -> bool:
    after = wanted.get("after")
    return (
        ("to" not in wanted or (row["recipient_email"] or "").lower() == wanted["to"].lower())
        and wanted.get("template") in (None, row["template_type"])
        and wanted.get("subject", "").lower() in (row["subject"] or "").lower()
        and (after is None or row["at"] > datetime.fromisoformat(after).astimezone())
    )


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["queue_id"]),
        "captured_at": row["at"].isoformat(),
        "to": row["recipient_email"],
        "from": row["from_email"],
        "subject": row["subject"],
        "template": row["template_type"],
        "tenant": row["tenant_id"],
        "status": row["status"],
        "bounced": row["bounced"],
        "attachments": row["files"],
    }


def _whole(queue_id: UUID, found: dict[str, Any]) -> dict[str, Any]:
    message, email = found["message"], found["email"] or {}
    links = find_links(message["html"], message["text"]).links
    return {
        "id": str(queue_id),
        "captured_at": found["captured_at"],
        **{name: message[name] for name in ("to", "from", "reply_to", "subject", "text", "html")},
        **{name: message[name] or [] for name in ("also_to", "cc", "bcc")},
        "headers": message["headers"] or {},
        "tags": message["tags"] or {},
        "links": [{"url": url, "text": text} for url, text in links],
        "attachments": [
            {name: file[name] for name in ("position", "filename", "content_type", "bytes")}
            for file in found["files"]
        ],
        "template": email.get("template_type"),
        "tenant": email.get("tenant_id"),
        "status": email.get("status", "deleted"),
        "events": [one["event"] for one in (*found["log"], *found["events"])],
    }
