"""How far a call over HTTP got, by what urllib3 raised, whoever has wrapped it.

In doubt it got through. A ProxyError alone says nothing: urllib3 takes a connection that was lost
during the answer for one to the proxy that never came about.
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
"""What can only happen before a request is on its way."""
_NO_TUNNEL = "Tunnel connection failed"
"""How http.client says that a proxy leads nowhere; it has no class for that."""


def never_connected(error: BaseException) -> bool:
    """Whether there was no connection that a request could have gone out on."""
    return any(isinstance(cause, _NEVER_CONNECTED) or _no_tunnel(cause) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised for: clients and urllib3 wrap each other's."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        wrapped = (getattr(found, "reason", None), *found.args, found.__cause__)
        found = next((each for each in wrapped if isinstance(each, BaseException)), None)


def _no_tunnel(error: BaseException) -> bool:
    return type(error) is OSError and str(error).startswith(_NO_TUNNEL)
