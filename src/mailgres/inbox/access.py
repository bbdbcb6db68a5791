"""Who may use the inbox: holders of its secret, under a host name that it expects.

A browser gets a cookie for the secret. Other sites can send requests to this machine, too: their
host name is not ours (DNS rebinding), their requests carry no cookie (SameSite=Strict), and what
changes something needs our Origin and a token that only our pages contain.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine."""
_PORT = re.compile(r":\d*\Z")
_NONCE_BYTES = 16


@dataclass(frozen=True)
class Access:
    """The secret, the expected host names, and whether an address may contain the secret.

    `token_in_url` is for a secret that is made for one run and printed at a terminal.
    """

    secret: str
    hosts: Sequence[str] = LOOPBACK
    token_in_url: bool = False

    def is_expected_host(self, request: Request) -> bool:
        """Return whether the request was sent to a name of ours; exactly one Host header."""
        given = request.headers.getlist("host")
        if len(given) != 1:
            return False
        return _PORT.sub("", given[0]).lower() in {host.lower() for host in self.hosts}

    def is_own_origin(self, request: Request) -> bool:
        """Return whether a page of ours sent the request."""
        given = request.headers.getlist("origin")
        if len(given) != 1:
            return False
        origin = urlsplit(given[0])
        return origin.scheme in ("http", "https") and origin.netloc == request.headers.get("host")

    def is_secret(self, given: str) -> bool:
        """Compare in constant time."""
        return _same(_digest(given), _digest(self.secret))

    def has_bearer(self, request: Request) -> bool:
        """Return whether the request has the secret as a bearer token."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and self.is_secret(token.strip())

    def session_of(self, request: Request) -> str | None:
        """Return the nonce of a valid cookie."""
        nonce, _, mark = request.cookies.get(self._cookie, "").partition(".")
        return nonce if nonce and _same(mark, self._sign("session", nonce)) else None

    def start_session(self, request: Request, response: Response) -> None:
        """Give the browser a cookie."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        response.set_cookie(
            self._cookie,
            f"{nonce}.{self._sign('session', nonce)}",
            path=request.scope.get("root_path") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def csrf_token(self, session: str) -> str:
        """Return the token that forms of this session contain."""
        return self._sign("csrf", session)

    def is_csrf_token(self, session: str, given: str) -> bool:
        """Compare in constant time."""
        return _same(given, self.csrf_token(session))

    @property
    def _cookie(self) -> str:
        # Cookies are not kept apart by port: two inboxes on one machine need two names.
        return f"mailgres_inbox_{self._sign('name', '')[:8]}"

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(
            self.secret.encode(), f"{purpose}:{text}".encode(), hashlib.sha256
        ).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
