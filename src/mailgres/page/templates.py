"""Templates: versions, the difference between two, a preview with a payload, and going back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from mailgres.errors import MailgresError, TemplateFailed
from mailgres.page.rendering import closed, pages
from mailgres.templates import Template, stored
from mailgres.templates.differences import differences
from mailgres.web import HEADERS, frame, in_thread

if TYPE_CHECKING:
    import psycopg
    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.page.handlers import Handlers
    from mailgres.page.store import PageStore
    from mailgres.templates import Draft, Rendered
    from mailgres.templates.stored import Stored

    Connection = psycopg.Connection[Any]

MOST_PAYLOAD = 8 * 1024
MOST_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Chosen:
    """What the address of a template asks for."""

    name: str
    version: int | None
    locale: str
    payload: str

    def query(self, **other: object) -> str:
        """Return it as parameters of an address."""
        given = {
            "name": self.name,
            "version": self.version,
            "locale": self.locale,
            "payload": self.payload,
        } | other
        return "?" + urlencode({name: value for name, value in given.items() if value})


class Templates:
    """The handlers of templates; each runs behind a rule of the table of routes."""

    def __init__(self, store: PageStore, common: Handlers) -> None:
        self._store = store
        self._common = common.common

    async def show(self, request: Request) -> Response:
        """Show all templates, or one with its versions, a difference and a preview."""
        role = request.state.session.user.role
        if not request.query_params.get("name"):
            found = await in_thread(self._store.read_with, role, stored.list_templates)
            return pages("templates.html", self._common(request) | {"templates": found})
        chosen = _chosen(request)
        template, draft, before = await in_thread(self._load, request, chosen)
        rendered, problem = await in_thread(_rendered, draft, chosen)
        version = chosen.version or template.active_version
        values = self._common(request) | {
            "template": template,
            "version": version,
            "versions": [(each, chosen.query(version=each)) for each in template.versions[::-1]],
            "locales": template.locales,
            "locale": chosen.locale,
            "payload": chosen.payload or _pretty(draft.settings.get("sample") or {}),
            "diff": [(line, _mood(line)) for line in _difference(before, draft, template, version)],
            "rendered": rendered._asdict() if rendered else None,
            "problem": problem,
            "frame": chosen.query(),
            "done": request.query_params.get("done") == "1",
        }
        return pages("template.html", values)

    async def show_frame(self, request: Request) -> Response:
        """Return the HTML of a preview for its closed frame."""
        chosen = _chosen(request)
        _, draft, _ = await in_thread(self._load, request, chosen)
        rendered, problem = await in_thread(_rendered, draft, chosen)
        if rendered is None or not rendered.html:
            raise HTTPException(404, problem or "This template has no HTML part.")
        text = frame.document(rendered.html, [], lambda _: None)
        return closed(text.encode("utf-8", "replace"), "text/html; charset=utf-8")

    async def activate(self, request: Request) -> Response:
        """Make a version the active one."""
        form = request.state.form
        name, version = form.get("name", "")[:200], _version(form.get("version", ""))
        if version is None:
            raise HTTPException(400, "Choose a version.")
        user = request.state.session.user
        await in_thread(
            self._store.change_with, user, lambda conn: stored.rollback(conn, name, version)
        )
        to = "?" + urlencode({"name": name, "done": 1})
        return RedirectResponse(f"../templates{to}", 303, HEADERS)

    def _load(self, request: Request, chosen: Chosen) -> tuple[Stored, Draft, Draft | None]:
        """Read a template, its chosen version and the active one, if that is another."""

        def load(conn: Connection) -> tuple[Stored, Draft, Draft | None]:
            found = stored.find(conn, chosen.name)
            draft = stored.read(conn, found, chosen.version)
            other = _compared(found, chosen.version or found.active_version)
            return found, draft, stored.read(conn, found, other) if other else None

        return self._store.read_with(request.state.session.user.role, load)


def _compared(template: Stored, version: int) -> int | None:
    """Return the version to compare with: the active one, or the one before it."""
    if version != template.active_version:
        return template.active_version
    earlier = [each for each in template.versions if each < version]
    return max(earlier) if earlier else None


def _difference(before: Draft | None, draft: Draft, template: Stored, version: int) -> list[str]:
    if before is None:
        return []
    other = _compared(template, version)
    return differences(before, draft, (f"version {other}", f"version {version}"))


def _rendered(draft: Draft, chosen: Chosen) -> tuple[Rendered | None, str]:
    """Render a preview; return it, or why it cannot be rendered."""
    try:
        given = json.loads(chosen.payload) if chosen.payload else draft.settings.get("sample") or {}
    except (ValueError, RecursionError):
        return None, "The payload is not JSON."
    if not isinstance(given, dict):
        return None, "The payload is not a JSON object."
    try:
        return Template(draft.contents, draft.name).render(given, chosen.locale or None), ""
    except (TemplateFailed, MailgresError) as error:
        return None, error.message


def _chosen(request: Request) -> Chosen:
    given = request.query_params
    if len(given.get("payload", "")) > MOST_PAYLOAD:
        raise HTTPException(400, f"The payload has more than {MOST_PAYLOAD} characters.")
    name, locale = given.get("name", "")[:200], given.get("locale", "")[:20]
    if "\0" in name + locale:
        raise HTTPException(404, "There is no such template.")
    return Chosen(name, _version(given.get("version", "")), locale, given.get("payload", ""))


def _version(given: str) -> int | None:
    if not given:
        return None
    if not given.isascii() or not given.isdecimal() or not 0 < int(given[:12]) <= MOST_VERSION:
        raise HTTPException(400, f"{given[:20]} is not a version.")
    return int(given)


def _pretty(payload: object) -> str:
    return json.dumps(payload, indent=2, ensure_ascii=False)


def _mood(line: str) -> str:
    """Return the colour of a line of a difference."""
    if line.startswith(("+++", "---", "@@")):
        return "place"
    return {"+": "added", "-": "removed"}.get(line[:1], "")
