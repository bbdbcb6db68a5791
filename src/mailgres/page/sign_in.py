"""How people sign in: with a secret, through a proxy that knows them, or by the application.

Each way says who sends a request. Nothing else in the package decides that.
"""

from __future__ import annotations

import inspect
import math
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.page.sessions import MOST_NAME, Session, Sessions
from mailgres.page.users import Role, User
from mailgres.web import Signer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    SignIn = Callable[[Request], "User | Awaitable[User | None] | None"]

SHORTEST_SECRET = 16
WRONG_FROM_ONE = 5
"""Wrong secrets a minute from one address; then it has to wait."""
WRONG_IN_ALL = 60
"""Wrong secrets a minute in all: addresses cost an attacker little."""
_MINUTE = 60.0
HOW_TO_OPEN = (
    "Set MAILGRES_PAGE_SECRET to at least 16 characters, or name a proxy that signs people in:"
    " MAILGRES_PAGE_PROXIES and MAILGRES_PAGE_USER_HEADER."
)


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of the page: its addresses, and the header with the name of the person.

    `operators`: names of people who may change something; the others are viewers. Without a
    `user_header` the proxy only terminates TLS.
    """

    addresses: Sequence[str]
    user_header: str = ""
    operators: Sequence[str] = ()

    def sent(self, request: Request) -> bool:
        """Return whether the request comes from the proxy."""
        return bool(request.client) and request.client.host in self.addresses  # type: ignore[union-attr]

    def user(self, request: Request) -> User | None:
        """Return whom the proxy names; exactly one header, and only from its own address."""
        if not self.user_header or not self.sent(request):
            return None
        given = request.headers.getlist(self.user_header)
        name = given[0].strip()[:MOST_NAME] if len(given) == 1 else ""
        if not name or not name.isprintable():
            return None
        return User(name, Role.OPERATOR if name in self.operators else Role.VIEWER)


@dataclass
class Limit:
    """Counts wrong secrets of the last minute, by address and in all."""

    clock: Callable[[], float] = time.monotonic
    _wrong: deque[tuple[float, str]] = field(default_factory=deque)

    def wait(self, address: str) -> int:
        """Return for how many seconds an address has to wait."""
        now = self.clock()
        while self._wrong and self._wrong[0][0] <= now - _MINUTE:
            self._wrong.popleft()
        own = [at for at, each in self._wrong if each == address]
        if len(own) >= WRONG_FROM_ONE:
            return math.ceil(own[-WRONG_FROM_ONE] + _MINUTE - now)
        if len(self._wrong) >= WRONG_IN_ALL:
            return math.ceil(self._wrong[-WRONG_IN_ALL][0] + _MINUTE - now)
        return 0

    def count(self, address: str) -> None:
        """Remember a wrong secret."""
        self._wrong.append((self.clock(), address))


class Gate:
    """Says who sends a request, by the ways that were given; refuses to be made without any."""

    def __init__(
        self,
        secret: str | None = None,
        viewer_secret: str | None = None,
        *,
        proxy: Proxy | None = None,
        sign_in: SignIn | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check(secret, viewer_secret, proxy, sign_in)
        self._secrets = [
            (Signer(each), role)
            for each, role in ((secret, Role.OPERATOR), (viewer_secret, Role.VIEWER))
            if each
        ]
        self._proxy = proxy
        self._sign_in = sign_in
        self.limit = Limit(clock)
        both = f"{secret}\0{viewer_secret}" if self._secrets else secrets.token_hex()
        self.sessions = Sessions(both, clock)

    @property
    def has_form(self) -> bool:
        """Whether people enter a secret."""
        return bool(self._secrets)

    async def session_of(self, request: Request) -> Session | None:
        """Return the session of a request; None: its sender is unknown."""
        user = await self._known(request)
        if user is not None:
            # The application or the proxy knows the person in every request: no cookie of ours.
            return Session(user, f"user {user.name}", 0, 0)
        return self.sessions.of(request) if self._secrets else None

    async def _known(self, request: Request) -> User | None:
        if self._sign_in is not None:
            found = self._sign_in(request)
            return await found if inspect.isawaitable(found) else found
        return self._proxy.user(request) if self._proxy else None

    def role_of(self, secret: str) -> Role | None:
        """Return the role that a secret gives. All are compared, in constant time."""
        found = [role for signer, role in self._secrets if signer.is_secret(secret)]
        return found[0] if found else None

    def is_tls(self, request: Request) -> bool:
        """Return whether the browser uses TLS, as far as we or our proxy know."""
        if self._proxy and self._proxy.sent(request):
            return request.headers.getlist("x-forwarded-proto") == ["https"]
        return request.url.scheme == "https"


def _check(
    secret: str | None, viewer_secret: str | None, proxy: Proxy | None, sign_in: SignIn | None
) -> None:
    """Refuse a page that would be open to anyone, or whose roles have one secret."""
    if not (secret or sign_in or (proxy and proxy.user_header)):
        raise MailgresError("The page has no secret", HOW_TO_OPEN)
    for each in (secret, viewer_secret):
        if each and len(each) < SHORTEST_SECRET:
            raise MailgresError("A secret of the page is too short", HOW_TO_OPEN)
    if secret and secret == viewer_secret:
        raise MailgresError(
            "Viewers and operators of the page have the same secret",
            "Give MAILGRES_PAGE_VIEWER_SECRET another value than MAILGRES_PAGE_SECRET.",
        )
