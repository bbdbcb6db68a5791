"""A browser without a screen: it keeps a cookie and sends forms, over real connections."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from mailgres import page
from mailgres.http.server import Server

SECRET = "the-secret-of-operators"
VIEWER_SECRET = "the-secret-of-viewers"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def csrf(self) -> str:
        """The token in the forms of a page."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.text)
        assert found, self.text
        return found[1]


@dataclass
class Client:
    """`headers` replace or remove (None) what a browser would send."""

    port: int
    app: page.Page
    cookie: str = ""
    base: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    def get(self, path: str = "/", **headers: str | None) -> Answer:
        return self.send("GET", path, None, headers)

    def post(self, path: str, form: dict[str, str], **headers: str | None) -> Answer:
        own: dict[str, str | None] = {"Origin": f"http://127.0.0.1:{self.port}"}
        own["Content-Type"] = "application/x-www-form-urlencoded"
        return self.send("POST", path, urlencode(form), own | headers)

    def change(self, path: str, form: dict[str, str] | None = None) -> Answer:
        """Send a form of the page, with its token."""
        return self.post(path, {"csrf": self.get("/").csrf(), **(form or {})})

    def sign_in(self, secret: str = SECRET, name: str = "ana") -> Client:
        """Enter a secret; return a client of its own with the session."""
        answer = self.post("/session", {"secret": secret, "name": name})
        assert answer.status == 303, answer.text
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return Client(self.port, self.app, cookie, self.base, self.extra)

    def send(self, method: str, path: str, body: str | None, headers: dict[str, Any]) -> Answer:
        sent = {"Cookie": self.cookie} if self.cookie else {}
        sent |= self.extra | {n.replace("_", "-"): v for n, v in headers.items() if v is not None}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, self.base + path, body, sent)
            found = connection.getresponse()
            given = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, given, found.read())
        finally:
            connection.close()


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
            yield Client(listener.getsockname()[1], opened)
        finally:
            server.stop()
            opened.close()
