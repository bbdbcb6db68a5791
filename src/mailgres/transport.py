"""How a connection reaches the server: locally or across a network, and how it is protected."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import psycopg

Protection = Literal["local", "verified", "unverified", "unencrypted"]
"""`local` stays on this machine; `unverified` uses TLS without checking the server."""

VERIFYING = {"verify-ca", "verify-full"}
"""The values of sslmode with which libpq refuses a server without a trusted certificate."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What libpq says about a connection."""

    address: str
    """The server's IP address; empty for a Unix socket."""
    encrypted: bool
    """Whether it uses TLS."""
    sslmode: str = "prefer"
    has_root_certificate: bool = False
    """Whether libpq has a file of trusted certificates."""


def of_connection(connection: psycopg.Connection[Any]) -> Transport:
    """Read what libpq says about a connection."""
    root, sslmode = _option(connection, b"sslrootcert"), _option(connection, b"sslmode")
    # The system's certificates imply verify-full.
    sslmode = "verify-full" if root == "system" else sslmode or "prefer"
    return Transport(
        connection.info.hostaddr,
        connection.pgconn.ssl_in_use,
        sslmode,
        _is_file(root or "~/.postgresql/root.crt"),
    )


def _option(connection: psycopg.Connection[Any], name: bytes) -> str:
    """Return an option of libpq. psycopg's `get_parameters` fails for a user without a home."""
    found = (one.val for one in connection.pgconn.info if one.keyword == name)
    return (next(found, None) or b"").decode()


def _is_file(path: str) -> bool:
    """Return whether libpq can find a file; a user without a home directory has none below it."""
    try:
        return Path(path).expanduser().is_file()
    except (OSError, RuntimeError):
        return False


def protection(transport: Transport) -> Protection:
    """Return how well a connection is protected against others on the network."""
    if _is_local(transport.address):
        return "local"
    if not transport.encrypted:
        return "unencrypted"
    # With a root certificate `require` verifies as `verify-ca` does; `prefer` would go on without.
    verifies = transport.sslmode in VERIFYING or (
        transport.sslmode == "require" and transport.has_root_certificate
    )
    return "verified" if verifies else "unverified"


def _is_local(address: str) -> bool:
    if not address:
        return True
    found = ip_address(address)
    # ::ffff:127.0.0.1 is local, too
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
