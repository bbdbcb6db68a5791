"""Asks name servers for TXT records, and never for long: by dnspython."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dns.exception
import dns.nameserver
import dns.resolver

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT = 53
SERVER_TIMEOUT_SECONDS = 2.0
"""How long a name server has to answer."""


class NoAnswer(Exception):
    """No name server gave a usable answer."""


def txt(name: str, nameservers: Sequence[str] | None = None) -> list[str]:
    """Return the TXT records of a name, none if there is no such name.

    Without `nameservers`, those of this machine are asked.
    """
    try:
        resolver = dns.resolver.Resolver(configure=nameservers is None)
        if nameservers is not None:
            resolver.nameservers = [_server(each) for each in nameservers]
        resolver.timeout = SERVER_TIMEOUT_SECONDS
        lifetime = SERVER_TIMEOUT_SECONDS * len(resolver.nameservers)
        answer = resolver.resolve(name, "TXT", lifetime=lifetime, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except (dns.exception.DNSException, OSError, ValueError):
        raise NoAnswer from None
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def _server(server: str) -> dns.nameserver.Do53Nameserver:
    return dns.nameserver.Do53Nameserver(*_address(server))


def _address(server: str) -> tuple[str, int]:
    """Return host and port of `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`."""
    if server.startswith("["):
        host, _, port = server[1:].partition("]")
        return host, int(port.removeprefix(":") or PORT)
    host, colon, port = server.rpartition(":")
    if colon and ":" not in host:
        return host, int(port)
    return server, PORT
