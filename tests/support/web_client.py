"""A browser without a screen: it keeps a cookie and sends forms, over real connections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode


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
class WebClient:
    """`headers` replace or remove (None) what a browser would send."""

    port: int
    cookie: str = ""
    base: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    def get(self, path: str = "/", **headers: str | None) -> Answer:
        return self.send("GET", path, None, headers)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str | None
    ) -> Answer:
        """Send any request."""
        return self.send(method, path, body, headers)

    def post(self, path: str, form: dict[str, str], **headers: str | None) -> Answer:
        own: dict[str, str | None] = {"Origin": f"http://127.0.0.1:{self.port}"}
        own["Content-Type"] = "application/x-www-form-urlencoded"
        return self.send("POST", path, urlencode(form), own | headers)

    def send(
        self, method: str, path: str, body: str | bytes | None, headers: dict[str, Any]
    ) -> Answer:
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
