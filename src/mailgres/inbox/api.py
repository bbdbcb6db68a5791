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

from mailgres.inbox.links import find_links
from mailgres.values.kinds import BadValue, Duration
from mailgres.web import HEADERS, as_number, in_thread, json_problem, read_body

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
        return [
            self._route("/api/inbox", GET=self.list_emails, DELETE=self.delete_all),
            self._route("/api/inbox/latest", GET=self.latest),
            self._route("/api/inbox/faults", POST=self.add_fault),
            self._route("/api/inbox/{id:uuid}", GET=self.show, DELETE=self.delete),
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
        return {"deleted": await in_thread(self._store.delete_all)}

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

    def _route(self, path: str, **handlers: Handler) -> Route:
        """Let only callers with the secret in."""

        async def answer(request: Request) -> Response:
            if not self._access.is_expected_host(request):
                return json_problem(403, "The inbox does not answer under this host name.")
            if not self._access.has_bearer(request):
                return json_problem(
                    _UNAUTHORIZED,
                    "Send the secret of the inbox: Authorization: Bearer …",
                    {"WWW-Authenticate": "Bearer"},
                )
            method = "GET" if request.method == "HEAD" else request.method
            return JSONResponse(await handlers[method](request), headers=HEADERS)

        return Route(path, answer, methods=list(handlers))


def _wanted(request: Request, *others: str) -> dict[str, str]:
    """Return the filters; refuse what would match everything: unknown, empty and repeated ones."""
    given = dict(request.query_params)
    if len(given) < len(request.query_params.multi_items()):
        raise HTTPException(_BAD, "Give each parameter once.")
    if unknown := sorted(given.keys() - _FILTERS - set(others)):
        known = ", ".join(sorted(_FILTERS | set(others)))
        raise HTTPException(_BAD, f"There is no parameter {unknown[0]!r}: give {known}.")
    if empty := sorted(name for name, value in given.items() if not value.strip()):
        raise HTTPException(_BAD, f"{empty[0]} is empty.")
    if " " in given.get("to", "").strip():
        raise HTTPException(_BAD, "to is not an address: in an address of the web, + is %2B.")
    if "after" in given:
        try:
            datetime.fromisoformat(given["after"]).astimezone()
        except (ValueError, OverflowError):
            raise HTTPException(_BAD, "after is not a time in ISO 8601.") from None
    return {name: value for name, value in given.items() if name in _FILTERS}


def _wait(request: Request) -> float:
    try:
        return WAIT.parse(request.query_params.get("wait", "0s")).total_seconds()
    except BadValue as error:
        raise HTTPException(_BAD, f"wait: {error}. Give {WAIT.allowed}.") from None


def _limit(request: Request) -> int:
    given = as_number(request.query_params.get("limit", "50"))
    if given is None or not 1 <= given <= MOST_EMAILS:
        raise HTTPException(_BAD, f"limit is not a number from 1 to {MOST_EMAILS}.")
    return given


async def _body(request: Request) -> dict[str, Any]:
    content = await read_body(request, MOST_BODY_BYTES)
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
