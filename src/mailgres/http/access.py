"""Who may call: bearer secrets, compared in constant time; loopback for metrics."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_PORT = re.compile(r":\d*\Z")
_LOCAL_NAMES = {"localhost", "127.0.0.1", "[::1]"}


def has_bearer(request: Request, secret: str) -> bool:
    """Return whether the request has the secret in its only Authorization header.

    Bytes are compared, so that a caller may send anything, and their digests, so that the time
    shows neither content nor length.
    """
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    mine = hashlib.sha256(secret.encode()).digest()
    theirs = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
    return hmac.compare_digest(mine, theirs) and scheme.lower() == "bearer"


def is_local(request: Request) -> bool:
    """Return whether the request comes from this machine and, as far as one can see, no proxy.

    A proxy on this machine forwards strangers; many add headers, some need to be configured to. A
    browser sent here by a stranger's page has the stranger's host in its Host header.
    """
    if any(name in request.headers for name in _FORWARDED):
        return False
    host = _PORT.sub("", request.headers.get("host", "")).lower()
    return host in _LOCAL_NAMES and is_loopback(request.client.host if request.client else "")


def is_loopback(address: str) -> bool:
    """Return whether only this machine has such an address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
