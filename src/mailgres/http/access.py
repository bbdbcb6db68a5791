"""Who may call: bearer secrets, compared so that time tells nothing; loopback for metrics."""

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
    """Whether the request brings the secret, in the one Authorization header it has.

    Bytes are compared, so that nothing a caller sends has to be text, and digests of them, so that
    neither content nor length shows in the time.
    """
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    mine = hashlib.sha256(secret.encode()).digest()
    theirs = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
    return hmac.compare_digest(mine, theirs) and scheme.lower() == "bearer"


def is_local(request: Request) -> bool:
    """Whether somebody on this machine asks, and for himself as far as one can tell.

    A proxy here speaks for strangers; many say so in their headers, some have to be told to. A
    browser led here by a stranger's page names the stranger's host.
    """
    if any(name in request.headers for name in _FORWARDED):
        return False
    host = _PORT.sub("", request.headers.get("host", "")).lower()
    return host in _LOCAL_NAMES and is_loopback(request.client.host if request.client else "")


def is_loopback(address: str) -> bool:
    """Whether only this machine has such an address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
