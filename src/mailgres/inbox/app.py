"""The inbox as an ASGI application: who may use it, its routes, and what failed requests get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route, request_response

from mailgres.inbox.access import Access
from mailgres.inbox.api import Api
from mailgres.inbox.events import Streams
from mailgres.inbox.handlers import Handlers
from mailgres.inbox.rendering import STATIC, page
from mailgres.inbox.store import REFUSED, InboxStore
from mailgres.web import (
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
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from mailgres.inbox.handlers import Handler
    from mailgres.web import NotAllowed

MOST_DOWNLOADS = 4
"""Downloads of one kind at a time: each can have 40 MB."""


class Inbox:
    """An ASGI application that shows captured emails to people with its secret.

    `url`: the database, as a member of `mailgres_operator`. `secret`: at least 16 characters.
    `hosts`: the names under which browsers reach it. `token_in_url`: the secret may be in the
    address, as `?token=…`. `notices`: texts that every page shows, such as errors of templates.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        hosts: Sequence[str] = LOOPBACK,
        *,
        token_in_url: bool = False,
        notices: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.store = InboxStore(url)
        self.access = Access(secret, hosts, token_in_url)
        self.streams = Streams(self.store, lambda: str(hash(tuple(notices()))))
        handlers = Handlers(self.store, self.access, self.streams, notices)
        self.problems = Problems("inbox", page, _log_in, REFUSED)
        app = _make_app(handlers, Api(self.store, self.access), self.problems)
        self._app = AtATime(app, self.problems.too_many)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; links are relative to an address with a slash at the end."""
        await with_slash(self._app, scope, receive, send)

    def check(self) -> None:
        """Refuse a database role that may not read captured emails."""
        self.store.check()

    def close(self) -> None:
        """End the streams and close the connections."""
        self.streams.stop()
        self.store.close()


def _make_app(handlers: Handlers, api: Api, problems: Problems) -> Starlette:
    get = handlers.get
    post = handlers.post
    message = "/messages/{id:uuid}"

    def download(path: str, handler: Handler) -> Route:
        """Return the route of a download: its content is in memory until it is sent."""
        limited = AtATime(request_response(handler), problems.too_many, MOST_DOWNLOADS)
        return Route(path, limited, methods=["GET"])

    app = Starlette(
        routes=[
            *api.routes(),
            static_route(files_in(STATIC)),
            Route("/session", handlers.log_in, methods=["POST"]),
            Route("/", get(handlers.show_list)),
            Route("/faults", get(handlers.show_faults)),
            Route("/faults", post(handlers.set_fault), methods=["POST"]),
            Route("/faults/{id}/remove", post(handlers.remove_fault), methods=["POST"]),
            Route("/delete", post(handlers.delete_all), methods=["POST"]),
            Route("/events", get(handlers.watch)),
            Route(message, get(handlers.show_message)),
            Route(f"{message}/frame", get(handlers.show_frame)),
            download(f"{message}/message.eml", get(handlers.download_message)),
            download(f"{message}/files/{{position}}", get(handlers.download_file)),
            Route(f"{message}/delete", post(handlers.delete), methods=["POST"]),
        ],
        exception_handlers=problems.handlers(),
    )
    # Another address is not here: a redirect would lead to whatever host the request names.
    app.router.redirect_slashes = False
    return app


def _log_in(request: Request, error: NotAllowed) -> Response:
    return page("login.html", {"base": relative(request), "wrong": error.wrong}, 403)
