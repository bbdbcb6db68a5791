"""A client of the inbox, and a server for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mailgres.http.dev import serving_inbox
from mailgres.inbox import Inbox
from support.web_client import WebClient

SECRET = "the-secret-of-the-inbox"


class Client(WebClient):
    """A client that knows the secret."""

    def log_in(self) -> Client:
        """Open the address that dev prints."""
        answer = self.get(f"/?token={SECRET}")
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self


@contextmanager
def serving(url: str, **options: Any) -> Iterator[Client]:
    """Serve an inbox, and yield a client without a session."""
    inbox = Inbox(url, SECRET, token_in_url=True, **options)
    with serving_inbox(inbox, port=0) as address:
        yield Client(address.port)
