"""Who calls: expected host names, our own origin, and signatures that only this server can make.

Other sites can send requests to a server that their visitor reaches. Their host name is not ours
(DNS rebinding), and what changes something needs our Origin.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine."""
_PORT = re.compile(r":\d*\Z")


@dataclass(frozen=True)
class Hosts:
    """The names under which browsers reach a page."""

    names: Sequence[str] = LOOPBACK

    def has(self, request: Request) -> bool:
        """Return whether the request was sent to a name of ours; exactly one Host header."""
        given = request.headers.getlist("host")
        if len(given) != 1:
            return False
        return _PORT.sub("", given[0]).lower() in {name.lower() for name in self.names}


def is_own_origin(request: Request) -> bool:
    """Return whether a page of ours sent the request."""
    given = request.headers.getlist("origin")
    if len(given) != 1:
        return False
    try:
        origin = urlsplit(given[0])
    except ValueError:
        return False
    return origin.scheme in ("http", "https") and origin.netloc == request.headers.get("host")


@dataclass(frozen=True)
class Signer:
    """Signs texts with a secret; a signature is for one purpose."""

    secret: str

    def sign(self, purpose: str, text: str) -> str:
        """Return the signature of a text."""
        message = f"{purpose}:{text}".encode("utf-8", "replace")
        return hmac.new(self.secret.encode(), message, hashlib.sha256).hexdigest()

    def is_signed(self, purpose: str, text: str, given: str) -> bool:
        """Compare in constant time."""
        return is_same(given, self.sign(purpose, text))

    def is_secret(self, given: str) -> bool:
        """Compare digests, so that the time shows neither content nor length."""
        return is_same(_digest(given), _digest(self.secret))


def is_same(one: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
