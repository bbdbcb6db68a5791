"""Finds out how far an HTTP call got, by the exception of urllib3, also if it is wrapped.

In doubt the request was sent. A ProxyError alone proves nothing: urllib3 also raises it if the
connection to the proxy is lost during the answer.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import urllib3.exceptions

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEVER_CONNECTED = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.NameResolutionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.LocationParseError,
    ssl.SSLCertVerificationError,
)
"""Exceptions that are only raised before a request is sent."""
_NO_TUNNEL = "Tunnel connection failed"
"""The text of http.client for a proxy that cannot connect; there is no class for it."""


def never_connected(error: BaseException) -> bool:
    """Return whether no connection was made, so that no request can have been sent."""
    return any(isinstance(cause, _NEVER_CONNECTED) or _no_tunnel(cause) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: clients and urllib3 wrap each other's exceptions."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        wrapped = (getattr(found, "reason", None), *found.args, found.__cause__)
        found = next((each for each in wrapped if isinstance(each, BaseException)), None)


def _no_tunnel(error: BaseException) -> bool:
    return type(error) is OSError and str(error).startswith(_NO_TUNNEL)
