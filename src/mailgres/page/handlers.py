"""What the page answers: signing in and out, and the state of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from mailgres.page import overview
from mailgres.page.rendering import pages
from mailgres.page.sessions import MOST_NAME
from mailgres.page.users import Role, User
from mailgres.web import HEADERS, NotAllowed, in_thread, relative

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.page.app import Looks
    from mailgres.page.overview import Overview
    from mailgres.page.sign_in import Gate
    from mailgres.page.store import PageStore


_SHOWN = ("providers", "tenants", "alerts")
_OPERATED = ("routes", "templates", "suppressions", "bulk")
SECTIONS = {Role.VIEWER: _SHOWN, Role.OPERATOR: (*_SHOWN, *_OPERATED)}
"""What the menu has for each role."""


class Handlers:
    """The handlers; each runs behind a rule of the table of routes."""

    def __init__(self, store: PageStore, gate: Gate, figures: Overview, looks: Looks) -> None:
        self._store = store
        self._gate = gate
        self._overview = figures
        self._looks = looks

    # --- signing in and out

    async def sign_in(self, request: Request) -> Response:
        """Start a session for a secret. Wrong ones are counted."""
        form = request.state.form
        address = request.client.host if request.client else ""
        if wait := self._gate.limit.wait(address):
            values = {
                "base": relative(request),
                "environment": self._looks.environment,
                "wrong": True,
                "wait": wait,
            }
            return pages("sign_in.html", values, 429, {"Retry-After": str(wait)})
        role = self._gate.role_of(form.get("secret", ""))
        if role is None:
            self._gate.limit.count(address)
            raise NotAllowed(wrong=True)
        name = "".join(filter(str.isprintable, form.get("name", ""))).strip()[:MOST_NAME]
        session = self._gate.sessions.start(User(name or role.name.lower(), role))
        answer = RedirectResponse("./", 303, HEADERS)
        self._gate.sessions.give(request, answer, session, tls=self._gate.is_tls(request))
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session, for every copy of its cookie."""
        self._gate.sessions.end(request.state.session)
        answer = RedirectResponse("./", 303, HEADERS)
        self._gate.sessions.take(request, answer)
        return answer

    # --- the queue

    async def show_queue(self, request: Request) -> Response:
        """Show the state of the queue."""
        return pages("queue.html", self.common(request) | await self._figures())

    async def show_live(self, request: Request) -> Response:
        """Return the part of that page that changes."""
        return pages("figures.html", self.common(request) | await self._figures())

    async def _figures(self) -> dict[str, object]:
        return overview.view_of(await in_thread(self._overview.figures))

    def common(self, request: Request) -> dict[str, object]:
        """Return what every page shows."""
        user = request.state.session.user
        return {
            "base": relative(request),
            "csrf": request.state.csrf,
            "user": user,
            "environment": self._looks.environment,
            "read_only": self._looks.read_only,
            "may_change": user.is_operator and not self._looks.read_only,
            "has_form": self._looks.has_form,
            "sections": SECTIONS[user.role],
            "here": request.url.path.rpartition("/")[2],
        }
