"""Who may use the inbox: holders of its secret, under a host name that it expects.

A browser gets a cookie for the secret. Other sites can send requests to this machine, too: their
host name is not ours (DNS rebinding), their requests carry no cookie (SameSite=Strict), and what
changes something needs our Origin and a token that only our pages contain.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.web import LOOPBACK, Hosts, Signer, cookie_path, is_own_origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

_NONCE_BYTES = 16
LEAST_SECRET = 16
"""Characters of a secret."""


@dataclass(frozen=True)
class Access:
    """The secret, the expected host names, and whether an address may contain the secret.

    `token_in_url` is for a secret that is made for one run and printed at a terminal.
    """

    secret: str
    hosts: Sequence[str] = LOOPBACK
    token_in_url: bool = False

    def __post_init__(self) -> None:
        """Refuse a secret that could be guessed: an empty one would let everybody in."""
        if len(self.secret) < LEAST_SECRET:
            raise MailgresError(
                "The secret of the inbox is too short", f"Give at least {LEAST_SECRET} characters."
            )

    def is_expected_host(self, request: Request) -> bool:
        """Return whether the request was sent to a name of ours; exactly one Host header."""
        return Hosts(self.hosts).has(request)

    def is_own_origin(self, request: Request) -> bool:
        """Return whether a page of ours sent the request."""
        return is_own_origin(request)

    def is_secret(self, given: str) -> bool:
        """Compare in constant time."""
        return self._signer.is_secret(given)

    def has_bearer(self, request: Request) -> bool:
        """Return whether the request has the secret as a bearer token."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and self.is_secret(token.strip())

    def session_of(self, request: Request) -> str | None:
        """Return the nonce of a valid cookie."""
        nonce, _, mark = request.cookies.get(self._cookie, "").partition(".")
        return nonce if nonce and self._signer.is_signed("session", nonce, mark) else None

    def start_session(self, request: Request, response: Response) -> None:
        """Give the browser a cookie."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        response.set_cookie(
            self._cookie,
            f"{nonce}.{self._signer.sign('session', nonce)}",
            path=cookie_path(request),
            secure=_is_tls(request),
            httponly=True,
            samesite="strict",
        )

    def csrf_token(self, session: str) -> str:
        """Return the token that forms of this session contain."""
        return self._signer.sign("csrf", session)

    def is_csrf_token(self, session: str, given: str) -> bool:
        """Compare in constant time."""
        return self._signer.is_signed("csrf", session, given)

    @property
    def _cookie(self) -> str:
        # Cookies are not kept apart by port: two inboxes on one machine need two names.
        return f"mailgres_inbox_{self._signer.sign('name', '')[:8]}"

    @property
    def _signer(self) -> Signer:
        return Signer(self.secret)


def _is_tls(request: Request) -> bool:
    """Return whether the browser uses https: behind a proxy, only the origin of a form says so."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https:")
