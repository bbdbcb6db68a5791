"""The pages of emails: a list with a filter, and one email with what can be done to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from mailgres.errors import MailgresError
from mailgres.page import filters, words
from mailgres.page.rendering import closed, pages
from mailgres.page.search import Found, search
from mailgres.page.timeline import advice_for, steps_of
from mailgres.templates import Template, load_contents, stored
from mailgres.web import HEADERS, as_uuid, frame, in_thread, path_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    import psycopg
    from starlette.requests import Request

    from mailgres.page.handlers import Handlers
    from mailgres.page.store import PageStore
    from mailgres.page.users import Role
    from mailgres.templates import Contents

    Connection = psycopg.Connection[Any]

VIEWS = {
    "timeline": "Timeline",
    "html": "HTML",
    "text": "Text",
    "source": "Source",
    "headers": "Headers",
    "payload": "Payload",
}
GONE = "There is no such email: check the id. An email is deleted when its retention is over."
NO_RECIPIENTS = "Viewers do not see recipients, so they cannot search for one."
MOST_TEXT = 512 * 1024
MOST_QUERY = 4096
DONE = {
    "retried": "It is back in the queue.",
    "cancelled": "It is cancelled.",
    "rescheduled": "It has a new time.",
}


class Emails:
    """The handlers of emails; each runs behind a rule of the table of routes."""

    def __init__(self, store: PageStore, common: Handlers) -> None:
        self._store = store
        self._common = common.common

    # --- the list

    async def show_list(self, request: Request) -> Response:
        """Show the emails that match the filter of the address."""
        given = request.query_params
        try:
            chosen = filters.read(given, datetime.now(UTC))
        except filters.BadFilter as error:
            kept: dict[str, Any] = {
                name: given.get(name, "")[: filters.MOST_TEXT] for name in filters.FIELDS
            }
            return self._list(request, filters.Filter(**kept), Found(), [], str(error))
        role = request.state.session.user.role
        if chosen.recipient and not request.state.session.user.is_operator:
            raise HTTPException(403, NO_RECIPIENTS)
        after = as_uuid(given.get("after"))
        found = await in_thread(search, self._store, role, chosen, after)
        rows: list[dict[str, Any]] = []
        if found.ids:
            query = f"emails_as_{role.name.lower()}"
            rows = await in_thread(self._store.read, role, query, ids=found.ids)
        return self._list(request, chosen, found, rows)

    def _list(
        self,
        request: Request,
        chosen: filters.Filter,
        found: Found,
        rows: list[dict[str, Any]],
        problem: str = "",
    ) -> Response:
        older = f"?{chosen.query}&{urlencode({'after': found.after})}" if found.after else ""
        values = self._common(request) | {
            "chosen": {name: getattr(chosen, name) for name in filters.FIELDS},
            "has_filter": bool(chosen),
            "statuses": [(name, label) for name, (label, _) in words.STATUSES.items()],
            "reasons": filters.REASONS,
            "emails": [_entry(row, _way_back(request.url.query)) for row in rows],
            "older": older,
            "looked": f"{found.looked:,}" if found.reached else "",
            "reached": found.reached.isoformat() if found.reached else "",
            "is_first": not request.query_params.get("after"),
            "first": f"?{chosen.query}",
            "problem": problem,
        }
        return pages("emails.html", values, 400 if problem else 200)

    # --- one email

    async def show(self, request: Request) -> Response:
        """Show what happened to an email, and its content to operators."""
        found = await self._find(request)
        user = request.state.session.user
        views = [name for name in VIEWS if _has(found, name, is_operator=user.is_operator)]
        view = request.query_params.get("view", "")
        view = view if view in views else views[0]
        values = self._common(request) | {
            "email": found["email"],
            "id": str(request.path_params["id"]),
            "recipient": found["recipient"],
            "subject": found["email"].get("subject") or (found["message"] or {}).get("subject"),
            "archived_at": found["archived_at"],
            "label": words.STATUSES.get(found["email"]["status"], ("", ""))[0],
            "mood": words.STATUSES.get(found["email"]["status"], ("", ""))[1],
            "steps": steps_of(found),
            "advice": advice_for(found),
            "views": [(name, VIEWS[name]) for name in views],
            "view": view,
            "back": _way_back(request.query_params.get("from", "")),
            "headers": headers_of(found) if view == "headers" else [],
            "source": ((found["message"] or {}).get("html") or "")[:MOST_TEXT],
            "text": ((found["message"] or {}).get("text") or "")[:MOST_TEXT],
            "payload": _pretty(found["email"].get("payload")),
            "files": found["files"],
            "done": DONE.get(request.query_params.get("done", ""), ""),
        }
        return pages("email.html", values)

    async def show_frame(self, request: Request) -> Response:
        """Return the HTML of an email for its closed frame."""
        found = await self._find(request)
        html = (found["message"] or {}).get("html")
        if not html:
            raise HTTPException(404, "This email has no HTML part here.")
        queue_id = request.path_params["id"]
        user = request.state.session.user

        def content_of(position: int) -> bytes | None:
            rows = self._store.read(user.role, "file", id=queue_id, position=position)
            return rows[0]["content"] if rows else None

        text = await in_thread(frame.document, html, found["files"], content_of)
        return closed(text.encode("utf-8", "replace"), "text/html; charset=utf-8")

    async def download(self, request: Request) -> Response:
        """Return an attachment, to be saved and not shown."""
        position = min(path_number(request, "position"), 2**31 - 1)
        rows = await in_thread(
            self._store.read,
            request.state.session.user.role,
            "file",
            id=request.path_params["id"],
            position=position,
        )
        if not rows or rows[0]["content"] is None:
            raise HTTPException(404, "This email has no such file.")
        answer = closed(rows[0]["content"], "application/octet-stream")
        name = quote(rows[0]["filename"], safe="")
        answer.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        return answer

    async def _find(self, request: Request) -> dict[str, Any]:
        role = request.state.session.user.role
        query = f"email_as_{role.name.lower()}"
        rows = await in_thread(self._store.read, role, query, id=request.path_params["id"])
        if not rows:
            raise HTTPException(404, GONE)
        found: dict[str, Any] = rows[0]["email"]
        if found["message"] is None and request.state.session.user.is_operator:
            found["message"] = await in_thread(self._rendered, role, found["email"])
        return found

    def _rendered(self, role: Role, email: Mapping[str, Any]) -> dict[str, Any] | None:
        """Render an email of a template as its next attempt would; None if that is impossible."""
        name, version = email["template_type"], email["template_version"]

        def load(conn: Connection) -> Contents:
            known = stored.list_templates(conn, name)
            return load_contents(conn, name, version or known[0].active_version) if known else {}

        contents = self._store.read_with(role, load)
        try:
            return Template(contents, name).render(email["payload"])._asdict() if contents else None
        except MailgresError:
            return None

    # --- changes

    async def retry(self, request: Request) -> Response:
        """Put an email back into the queue."""
        accept = request.state.form.get("accept") == "yes"
        return await self._change(request, "retry", "retried", accept=accept)

    async def cancel(self, request: Request) -> Response:
        """Cancel an email."""
        reason = request.state.form.get("reason", "").strip()[:200] or None
        return await self._change(request, "cancel", "cancelled", reason=reason)

    async def reschedule(self, request: Request) -> Response:
        """Give a waiting email another time."""
        text = request.state.form.get("at", "").strip()
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise HTTPException(400, f"{text or 'Nothing'} is not a time.") from None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return await self._change(request, "reschedule", "rescheduled", at=at)

    async def _change(
        self, request: Request, query: str, done: str, **parameters: object
    ) -> Response:
        queue_id: UUID = request.path_params["id"]
        user = request.state.session.user
        await in_thread(self._store.change, user, query, id=queue_id, **parameters)
        back = _way_back(request.state.form.get("from", ""))
        to = urlencode({"done": done} | ({"from": back} if back else {}))
        return RedirectResponse(f"../{queue_id}?{to}", 303, HEADERS)


def _entry(row: dict[str, Any], query: str) -> dict[str, Any]:
    """Return a row of the list."""
    label, mood = words.STATUSES.get(row["status"], (row["status"], words.PLAIN))
    why = row["error_message"] if row["status"] in ("failed", "cancelled", "pending") else ""
    return row | {
        "id": str(row["id"]),
        "created_at": row["created_at"].isoformat(),
        "label": label,
        "mood": mood,
        "why": why or "",
        "query": f"?{urlencode({'from': query})}" if query else "",
    }


def _has(found: Mapping[str, Any], view: str, *, is_operator: bool) -> bool:
    message = found["message"] or {}
    if view == "timeline":
        return True
    if not is_operator:
        return False
    return view in ("payload", "headers") or bool(message.get("html" if view == "source" else view))


def _way_back(query: str) -> str:
    """Return the filter and the position of a list, and nothing else that the address had."""
    known = (*filters.FIELDS, "after")
    given = parse_qsl(query[:MOST_QUERY])
    return urlencode([(name, value) for name, value in given if name in known])


def headers_of(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of an email as far as they are known before it is sent."""
    email, message = found["email"], found["message"] or {}
    own = {
        "From": message.get("from") or email.get("from_email"),
        "Reply-To": message.get("reply_to") or email.get("reply_to"),
        "To": ", ".join(filter(None, [found["recipient"], *(email.get("also_to") or ())])),
        "Cc": ", ".join(email.get("cc") or ()),
        "Bcc": ", ".join(email.get("bcc") or ()),
        "Subject": message.get("subject") or email.get("subject"),
    }
    given = message.get("headers") or email.get("headers") or {}
    return [(name, str(value)) for name, value in {**own, **given}.items() if value]


def _pretty(payload: object) -> str:
    return json.dumps(payload, indent=2, ensure_ascii=False)[:MOST_TEXT] if payload else ""
