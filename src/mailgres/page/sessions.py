"""Sessions: a signed cookie that expires when it is old or not used, and ends at sign-out.

The cookie contains everything, so any process with the same secrets accepts it. A process remembers
the sessions that ended in it; another secret ends all sessions everywhere.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mailgres.page.users import Role, User
from mailgres.web import Signer, cookie_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

MOST_SECONDS = 12 * 3600
"""Seconds after which a session ends, however much it is used."""
IDLE_SECONDS = 3600
"""Seconds without a page after which a session ends; live updates do not count."""
RENEW_SECONDS = 60
"""Seconds after which the next page renews the cookie."""
MOST_NAME = 60
_NONCE_BYTES = 16


@dataclass(frozen=True)
class Session:
    """A session of a person: when it started, and when a page was last opened in it."""

    user: User
    nonce: str
    started: int
    seen: int


class Sessions:
    """Makes and reads the cookies of sessions."""

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        self._signer = Signer(hashlib.sha256(f"mailgres page\0{secret}".encode()).hexdigest())
        self._clock = clock
        self._ended: dict[str, float] = {}

    def of(self, request: Request) -> Session | None:
        """Return the session of a request; None if there is none, or it is over."""
        text, _, mark = request.cookies.get(self.cookie, "").rpartition(".")
        if not text or not self._signer.is_signed("session", text, mark):
            return None
        found = _read(text)
        now = self._clock()
        is_over = now - found.started >= MOST_SECONDS or now - found.seen >= IDLE_SECONDS
        return None if is_over or found.nonce in self._ended else found

    def start(self, user: User) -> Session:
        """Return a new session."""
        now = int(self._clock())
        return Session(user, secrets.token_hex(_NONCE_BYTES), now, now)

    def end(self, session: Session) -> None:
        """Refuse the cookie of a session from now on."""
        now = self._clock()
        self._ended = {nonce: until for nonce, until in self._ended.items() if until > now}
        self._ended[session.nonce] = session.started + MOST_SECONDS

    def renewed(self, session: Session) -> Session | None:
        """Return the session as seen now; None if that was written a moment ago."""
        now = int(self._clock())
        return replace(session, seen=now) if now - session.seen >= RENEW_SECONDS else None

    def give(self, request: Request, response: Response, session: Session, *, tls: bool) -> None:
        """Give the browser the cookie."""
        text = _write(session)
        response.set_cookie(
            self.cookie,
            f"{text}.{self._signer.sign('session', text)}",
            path=cookie_path(request),
            secure=tls,
            httponly=True,
            samesite="strict",
        )

    def take(self, request: Request, response: Response) -> None:
        """Let the browser delete the cookie."""
        response.delete_cookie(self.cookie, cookie_path(request))

    def csrf_token(self, session: Session) -> str:
        """Return the token that forms of a session contain."""
        return self._signer.sign("csrf", session.nonce)

    def is_csrf_token(self, session: Session, given: str) -> bool:
        """Compare in constant time."""
        return self._signer.is_signed("csrf", session.nonce, given)

    @property
    def cookie(self) -> str:
        """The name of the cookie. Ports do not keep cookies apart, so each secret has its own."""
        return f"mailgres_page_{self._signer.sign('name', '')[:8]}"


def _write(session: Session) -> str:
    name = urlsafe_b64encode(session.user.name.encode()).decode().rstrip("=")
    role = session.user.role
    return f"{session.nonce}-{role}-{session.started}-{session.seen}.{name}"


def _read(text: str) -> Session:
    """Read what we signed."""
    head, _, name = text.partition(".")
    nonce, role, started, seen = head.split("-")
    decoded = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    return Session(User(decoded, Role(int(role))), nonce, int(started), int(seen))
