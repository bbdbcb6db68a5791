"""The page as an ASGI application: its table of routes, and what failed requests get."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response

from mailgres.page.bulk import Bulk
from mailgres.page.bulk_runner import BulkRunner
from mailgres.page.emails import Emails
from mailgres.page.guard import Guard, Rule
from mailgres.page.handlers import Handlers
from mailgres.page.operate import Operate
from mailgres.page.overview import Overview
from mailgres.page.rendering import STATIC, pages
from mailgres.page.sign_in import Gate, Proxy
from mailgres.page.store import REFUSED, PageStore
from mailgres.page.templates import Templates
from mailgres.page.users import Role
from mailgres.web import (
    HEADERS,
    LOOPBACK,
    AtATime,
    Problems,
    files_in,
    relative,
    static_route,
    with_slash,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from mailgres.page.sign_in import SignIn
    from mailgres.web import NotAllowed


@dataclass(frozen=True)
class Looks:
    """What every page shows: the environment, and whether anything can be changed."""

    environment: str = ""
    read_only: bool = False
    has_form: bool = True


class Page:
    """An ASGI application that lets people operate the queue."""

    def __init__(self, url: str, gate: Gate, hosts: Sequence[str], looks: Looks) -> None:
        self.store = PageStore(url)
        self.gate = gate
        self.overview = Overview(self.store)
        self.bulk_runner = BulkRunner(self.store, is_off=looks.read_only)
        handlers = Handlers(self.store, gate, self.overview, looks)
        self.rules = [
            *rules_of(handlers, Emails(self.store, handlers)),
            *rules_of_operating(Operate(self.store, handlers)),
            *rules_of_bulk(Bulk(self.store, handlers, self.bulk_runner)),
            *rules_of_templates(Templates(self.store, handlers)),
        ]
        guard = Guard(gate, hosts, read_only=looks.read_only)
        self._looks = looks
        shown = {"environment": looks.environment}
        problems = Problems("page", pages, self._sign_in, REFUSED, **shown)
        self._app = Starlette(
            routes=[static_route(files_in(STATIC)), *(guard.route(rule) for rule in self.rules)],
            exception_handlers=problems.handlers(),
        )
        self._app.router.redirect_slashes = False
        self._bounded = AtATime(self._app, problems.too_many)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, below any path."""
        await with_slash(self._bounded, scope, receive, send)

    def check(self) -> None:
        """Refuse a login of the database that may not act as viewer and operator.

        From now on bulk actions go on, also those that another process left.
        """
        self.store.check()
        self.bulk_runner.wake()

    def close(self) -> None:
        """Stop after the current chunk of a bulk action, and close the connections."""
        self.bulk_runner.close()
        self.store.close()

    def _sign_in(self, request: Request, error: NotAllowed) -> Response:
        if not self._looks.has_form:
            return PlainTextResponse("Sign in first.\n", 403, HEADERS)
        shown = {"base": relative(request), "environment": self._looks.environment}
        return pages("sign_in.html", {**shown, "wrong": error.wrong, "wait": 0}, 403)


def rules_of(handlers: Handlers, emails: Emails) -> list[Rule]:
    """Return the table of routes: every path and method, and who may call it."""
    anyone, viewer, operator = Role
    email = "/emails/{id:uuid}"
    return [
        Rule("/session", "POST", anyone, handlers.sign_in, is_change=False),
        Rule("/sign-out", "POST", viewer, handlers.sign_out, is_change=False),
        Rule("/", "GET", viewer, handlers.show_queue),
        Rule("/live", "GET", viewer, handlers.show_live, is_live=True),
        Rule("/emails", "GET", viewer, emails.show_list),
        Rule(email, "GET", viewer, emails.show),
        Rule(f"{email}/frame", "GET", operator, emails.show_frame),
        Rule(f"{email}/files/{{position}}", "GET", operator, emails.download),
        Rule(f"{email}/retry", "POST", operator, emails.retry),
        Rule(f"{email}/cancel", "POST", operator, emails.cancel),
        Rule(f"{email}/reschedule", "POST", operator, emails.reschedule),
    ]


def rules_of_operating(operate: Operate) -> list[Rule]:
    """Return the rest of that table: dead letters, and what the queue is made of."""
    _, viewer, operator = Role
    return [
        Rule("/dead-letters", "GET", viewer, operate.show_dead_letters),
        Rule("/providers", "GET", viewer, operate.show_providers),
        Rule("/providers/pause", "POST", operator, operate.pause_provider),
        Rule("/providers/resume", "POST", operator, operate.resume_provider),
        Rule("/providers/reset", "POST", operator, operate.reset_provider),
        Rule("/routes", "GET", operator, operate.show_routes),
        Rule("/routes/pause", "POST", operator, operate.pause_route),
        Rule("/routes/resume", "POST", operator, operate.resume_route),
        Rule("/tenants", "GET", viewer, operate.show_tenants),
        Rule("/tenants/pause", "POST", operator, operate.pause_tenant),
        Rule("/tenants/resume", "POST", operator, operate.resume_tenant),
        Rule("/tenants/weight", "POST", operator, operate.set_weight),
        Rule("/alerts", "GET", viewer, operate.show_alerts),
        Rule("/alerts/set", "POST", operator, operate.set_rule),
        Rule("/suppressions", "GET", operator, operate.show_suppressions),
        Rule("/suppressions/add", "POST", operator, operate.suppress),
        Rule("/suppressions/remove", "POST", operator, operate.unsuppress),
    ]


def rules_of_bulk(bulk: Bulk) -> list[Rule]:
    """Return the rules of bulk actions: every operator sees and stops all of them."""
    operator = Role.OPERATOR
    one = "/bulk/{number}"
    return [
        Rule("/bulk", "GET", operator, bulk.show_list),
        Rule("/bulk/new", "GET", operator, bulk.show_new),
        Rule("/bulk", "POST", operator, bulk.start),
        Rule(one, "GET", operator, bulk.show),
        Rule(f"{one}/live", "GET", operator, bulk.show_live, is_live=True),
        Rule(f"{one}/stop", "POST", operator, bulk.stop),
        Rule(f"{one}/resume", "POST", operator, bulk.resume),
    ]


def rules_of_templates(templates: Templates) -> list[Rule]:
    """Return the rules of templates: their content is for operators."""
    operator = Role.OPERATOR
    return [
        Rule("/templates", "GET", operator, templates.show),
        Rule("/templates/frame", "GET", operator, templates.show_frame),
        Rule("/templates/activate", "POST", operator, templates.activate),
    ]


def app(
    url: str,
    *,
    secret: str | None = None,
    viewer_secret: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    proxy: Proxy | None = None,
    sign_in: SignIn | None = None,
    environment: str = "",
    read_only: bool = False,
    clock: Callable[[], float] = time.time,
) -> Page:
    """Return the operator's page as an ASGI application; refuse one that would be open to anyone.

    `url`: the database, as a login that is a member of `mailgres_operator` and `mailgres_analyst`.
    `secret`, `viewer_secret`: what operators and viewers enter. `hosts`: the names under which
    browsers reach the page. `proxy`: a proxy in front of it. `sign_in`: returns the `User` of a
    request, or None, for an application that has a sign-in of its own. `environment`: a badge on
    every page. `read_only`: nothing can be changed.
    """
    gate = Gate(secret, viewer_secret, proxy=proxy, sign_in=sign_in, clock=clock)
    return Page(url, gate, hosts, Looks(environment, read_only, gate.has_form))
