"""What the inbox answers: pages, the frame of an email, downloads, changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from mailgres.inbox import letter
from mailgres.inbox.message import scheme_of, view_of
from mailgres.inbox.rendering import page
from mailgres.inbox.timeline import state_of
from mailgres.web import (
    HEADERS,
    RETRY_SOON,
    NotAllowed,
    as_time,
    as_uuid,
    frame,
    in_thread,
    path_number,
    read_form,
    relative,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from uuid import UUID

    from starlette.requests import Request

    from mailgres.inbox.access import Access
    from mailgres.inbox.events import Streams
    from mailgres.inbox.store import InboxStore

    Handler = Callable[[Request], Awaitable[Response]]

PAGE_SIZE = 50
PIECE_BYTES = 64 * 1024
"""Bytes of a download that are sent at once."""
FAULTS = {
    "bounce": "bounces",
    "timeout": "times out",
    "reject": "is rejected",
    "unanswered": "is accepted, but the answer is lost",
}
OTHER_HOST = (
    "The inbox does not answer under this host name. Open the address that `mailgres dev` printed,"
    " or add the name to MAILGRES_INBOX_HOSTS."
)
NOT_OURS = "This was not sent by a page of the inbox. Go back, load the page again, and repeat it."
GONE = "This email is not in the inbox any more: it was deleted, or it expired."


class Handlers:
    """The handlers; `get` and `post` check who calls before any of them runs."""

    def __init__(
        self,
        store: InboxStore,
        access: Access,
        streams: Streams,
        notices: Callable[[], Sequence[str]],
    ) -> None:
        self._store = store
        self._access = access
        self._streams = streams
        self._notices = notices

    # --- who calls

    def get(self, handler: Handler) -> Handler:
        """Let only callers with a session read."""

        async def checked(request: Request) -> Response:
            self._check_host(request)
            token = request.query_params.get("token")
            if token is not None and self._access.token_in_url:
                return self._log_in(request, token, request.url.path.rpartition("/")[2] or "./")
            session = self._access.session_of(request)
            if session is None and not self._access.has_bearer(request):
                raise NotAllowed
            request.state.csrf = self._access.csrf_token(session or "")
            return await handler(request)

        return checked

    def post(self, handler: Handler) -> Handler:
        """Let only forms of our own pages change something."""

        async def checked(request: Request) -> Response:
            self._check_host(request)
            session = self._access.session_of(request)
            if session is None:
                raise NotAllowed
            form = await read_form(request)
            own = self._access.is_own_origin(request)
            if not own or not self._access.is_csrf_token(session, form.get("csrf", "")):
                raise NotAllowed(NOT_OURS)
            request.state.form = form
            return await handler(request)

        return checked

    async def log_in(self, request: Request) -> Response:
        """Start a session for the secret."""
        self._check_host(request)
        if not self._access.is_own_origin(request):
            raise NotAllowed(NOT_OURS)
        return self._log_in(request, (await read_form(request)).get("secret", ""), "./")

    def _log_in(self, request: Request, given: str, to: str) -> Response:
        if not self._access.is_secret(given):
            raise NotAllowed(wrong=True)
        answer = RedirectResponse(to, 303, HEADERS)
        self._access.start_session(request, answer)
        return answer

    def _check_host(self, request: Request) -> None:
        if not self._access.is_expected_host(request):
            raise NotAllowed(OTHER_HOST)

    # --- pages

    async def show_list(self, request: Request) -> Response:
        """Show the newest emails, or those that a search finds."""
        return page("list.html", await self._list(request))

    async def show_message(self, request: Request) -> Response:
        """Show one email beside the list."""
        queue_id: UUID = request.path_params["id"]
        values = await self._list(request, queue_id)
        found = await self._email(queue_id)
        values |= {
            "message": await in_thread(view_of, found, request.query_params),
            "faults": FAULTS,
        }
        return page("message.html", values)

    async def show_faults(self, request: Request) -> Response:
        """Show which faults wait for an email, and the form for another one."""
        values = await self._common(request)
        waiting, templates = await asyncio.gather(
            in_thread(self._store.faults), in_thread(self._store.templates)
        )
        given = request.query_params
        values |= {
            "waiting": [{**one, "label": FAULTS[one["fault"]]} for one in waiting],
            "templates": templates,
            "faults": FAULTS,
            "to": given.get("to", ""),
        }
        return page("faults.html", values)

    async def _common(self, request: Request, queue_id: UUID | None = None) -> dict[str, object]:
        """Return what every page needs.

        Called before the rest is read: a change in between is then newer than the state of the
        page, and the stream announces it.
        """
        return {
            "base": relative(request),
            "csrf": request.state.csrf,
            "notices": list(self._notices()),
            "state": await in_thread(self._streams.state, queue_id),
            "selected": str(queue_id or ""),
        }

    async def _list(self, request: Request, selected: UUID | None = None) -> dict[str, object]:
        search = request.query_params.get("q", "")[:200]
        before = as_time(request.query_params.get("before"))
        before_id = as_uuid(request.query_params.get("before_id"))
        values = await self._common(request, selected)
        rows = await in_thread(self._store.emails, search or None, before, PAGE_SIZE + 1, before_id)
        emails = [_entry(row) for row in rows[:PAGE_SIZE]]
        last = rows[PAGE_SIZE - 1] if len(rows) > PAGE_SIZE else None
        return values | {
            "emails": emails,
            "search": search,
            "query": "?" + urlencode({"q": search}) if search else "",
            "older": _older(search, last) if last else "",
            "is_first_page": before is None,
        }

    async def _email(self, queue_id: UUID) -> dict[str, Any]:
        found = await in_thread(self._store.email, queue_id)
        if found is None:
            raise HTTPException(404, GONE)
        return found

    # --- parts of an email

    async def show_frame(self, request: Request) -> Response:
        """Return the HTML of an email for its frame."""
        found = await self._captured(request)
        queue_id = request.path_params["id"]
        text = await in_thread(
            frame.document,
            found["message"]["html"] or "",
            found["files"],
            lambda position: self._content(queue_id, position),
            scheme_of(request.query_params),
        )
        content = text.encode("utf-8", "replace")
        return Response(content, headers=_sandboxed("text/html; charset=utf-8"))

    async def download_message(self, request: Request) -> Response:
        """Return the message as a file of a mail program, with its attachments."""
        found = await self._captured(request)
        queue_id = request.path_params["id"]
        source = await in_thread(
            letter.source_of, found, lambda position: self._content(queue_id, position)
        )
        return _as_download(source, f"{queue_id}.eml")

    async def download_file(self, request: Request) -> Response:
        """Return an attachment, to be saved and not shown."""
        queue_id, position = request.path_params["id"], path_number(request, "position")
        file = await in_thread(self._store.file, queue_id, min(position, 2**31 - 1))
        if file is None or file["content"] is None:
            raise HTTPException(404, "The content of this file was not kept.")
        return _as_download(file["content"], file["filename"])

    async def _captured(self, request: Request) -> dict[str, Any]:
        found = await self._email(request.path_params["id"])
        if found["message"] is None:
            raise HTTPException(404, "This email was not captured.")
        return found

    def _content(self, queue_id: UUID, position: int) -> bytes | None:
        file = self._store.file(queue_id, position)
        return file["content"] if file else None

    async def watch(self, request: Request) -> Response:
        """Send an event whenever the page that the browser shows has changed."""
        if self._streams.is_full:
            raise HTTPException(503, "Too many browsers get live updates.", RETRY_SOON)
        if request.method == "HEAD":  # a stream has no end
            return Response(media_type="text/event-stream", headers=HEADERS)
        given = request.query_params
        stream = self._streams.stream(given.get("state", ""), as_uuid(given.get("id")))
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    # --- changes

    async def delete(self, request: Request) -> Response:
        """Delete one email."""
        await in_thread(self._store.delete, [request.path_params["id"]])
        return _back(request, "../../")

    async def delete_all(self, request: Request) -> Response:
        """Delete all emails of the inbox."""
        await in_thread(self._store.delete_all)
        return _back(request, "./")

    async def set_fault(self, request: Request) -> Response:
        """Let the next email fail."""
        form = request.state.form
        await in_thread(
            self._store.set_fault,
            form.get("fault", ""),
            form.get("to", "").strip() or None,
            form.get("template", "").strip() or None,
        )
        return _back(request, "faults")

    async def remove_fault(self, request: Request) -> Response:
        """Remove a fault that has not happened."""
        await in_thread(self._store.remove_fault, path_number(request, "id"))
        return _back(request, "../../faults")


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the list with its label."""
    label, mood = state_of(row["status"], bounced=row["bounced"])
    return {
        **row,
        "queue_id": str(row["queue_id"]),
        "at": row["at"].isoformat(timespec="milliseconds"),
        "clock": f"{row['at']:%H:%M:%S}",
        "due": f"waits until {row['next_retry_at']:%Y-%m-%d %H:%M} UTC"
        if row["status"] == "pending" and row["next_retry_at"]
        else "",
        "label": label,
        "mood": mood,
    }


def _older(search: str, last: dict[str, Any]) -> str:
    """Return the parameters of the next page: an id, too, as several emails can have one time."""
    position = {"before": last["at"].isoformat(), "before_id": str(last["queue_id"])}
    return "?" + urlencode({"q": search, **position})


def _back(request: Request, to: str) -> Response:
    """Return to the list, with its search."""
    search = request.state.form.get("q", "")
    return RedirectResponse(to + ("?" + urlencode({"q": search}) if search else ""), 303, HEADERS)


def _sandboxed(kind: str) -> dict[str, str]:
    """Return the headers of content that an email brought."""
    own = {"Content-Security-Policy": frame.POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return {**HEADERS, **own, "Content-Type": kind}


def _as_download(content: bytes, filename: str) -> Response:
    """Return a file piece by piece: only as fast as the client reads it."""
    headers = {
        **_sandboxed("application/octet-stream"),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(filename, safe='')}",
        "Content-Length": str(len(content)),
    }
    return StreamingResponse(_pieces(content), headers=headers)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
