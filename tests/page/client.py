"""A client of the operator's page, and a server for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mailgres import page
from mailgres.http.server import Server
from support.browser import Browser
from support.web_client import Answer, WebClient

SECRET = "the-secret-of-operators"
VIEWER_SECRET = "the-secret-of-viewers"


@dataclass(kw_only=True)
class Client(WebClient):
    """A client of a page, which the test can look into."""

    app: page.Page

    def change(self, path: str, form: dict[str, str] | None = None) -> Answer:
        """Send a form of the page, with its token."""
        return self.post(path, {"csrf": self.get("/").csrf(), **(form or {})})

    def sign_in(self, secret: str = SECRET, name: str = "ana") -> Client:
        """Enter a secret; return a client of its own with the session."""
        answer = self.post("/session", {"secret": secret, "name": name})
        assert answer.status == 303, answer.text
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return replace(self, cookie=cookie)


@contextmanager
def serving(url: str, **options: Any) -> Iterator[Client]:
    """Serve a page, and yield a client without a session."""
    given: dict[str, Any] = {"secret": SECRET, "viewer_secret": VIEWER_SECRET} | options
    opened = page.app(url, **given)
    with running(opened, opened) as client:
        yield client


@contextmanager
def running(app: Any, opened: page.Page) -> Iterator[Client]:
    """Serve an application that has a page in it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(app, listener, grace=0)
        server.start()
        try:
            yield Client(port=listener.getsockname()[1], app=opened)
        finally:
            server.stop()
            opened.close()


def at(window: Browser, path: str) -> str:
    """Return the address of a path of the page that a browser shows."""
    return "/".join(window.url.split("/")[:3]) + path
