"""The table of routes: who may call what. Every handler runs behind it, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import Route

from mailgres.page.users import Role
from mailgres.web import Hosts, NotAllowed, is_own_origin, read_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.page.sign_in import Gate

    Handler = Callable[[Request], Awaitable[Response]]

READ_ONLY = "This page is read-only: nothing can be changed here."


@dataclass(frozen=True)
class Rule:
    """A path, a method, who may call it, and what answers.

    `is_live`: it does not count as use of a session. `is_change`: read-only mode refuses it.
    """

    path: str
    method: str
    role: Role
    handler: Handler
    is_live: bool = False
    is_change: bool = True


class Guard:
    """Checks a request before its handler runs."""

    def __init__(self, gate: Gate, hosts: Sequence[str], *, read_only: bool) -> None:
        self._gate = gate
        self._hosts = Hosts(hosts)
        self._read_only = read_only

    def route(self, rule: Rule) -> Route:
        """Return the route of a rule."""

        async def checked(request: Request) -> Response:
            if not self._hosts.has(request):
                raise NotAllowed("The page does not answer under this host name.")
            await self._let_in(request, rule)
            if rule.method == "POST":
                await self._check_form(request, rule)
            answer = await rule.handler(request)
            self._renew(request, answer, rule)
            return answer

        return Route(rule.path, checked, methods=[rule.method])

    async def _let_in(self, request: Request, rule: Rule) -> None:
        """Find out who calls, and refuse a role that is too small."""
        session = await self._gate.session_of(request)
        request.state.session = session
        if rule.role == Role.ANYONE:
            return
        if session is None:
            raise NotAllowed
        if session.user.role < rule.role:
            raise HTTPException(403, "This needs the role operator; you are a viewer.")
        request.state.csrf = self._gate.sessions.csrf_token(session)

    async def _check_form(self, request: Request, rule: Rule) -> None:
        """Accept only forms of our own pages."""
        if not is_own_origin(request):
            raise NotAllowed("This form was not sent by a page of this server.")
        form = await read_form(request)
        if rule.role != Role.ANYONE:
            token = form.get("csrf", "")
            if not self._gate.sessions.is_csrf_token(request.state.session, token):
                raise NotAllowed(
                    "This form is too old. Go back, load the page again and repeat it."
                )
            if self._read_only and rule.is_change:
                raise HTTPException(403, READ_ONLY)
        request.state.form = form

    def _renew(self, request: Request, answer: Response, rule: Rule) -> None:
        """Extend a session that is used."""
        session = request.state.session
        if session is None or not session.started or rule.is_live or rule.role == Role.ANYONE:
            return
        if not rule.is_change and rule.method == "POST":
            return  # signing out
        if renewed := self._gate.sessions.renewed(session):
            tls = self._gate.is_tls(request)
            self._gate.sessions.give(request, answer, renewed, tls=tls)
