"""Parses an SMTP URL: server, encryption, user and password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from mailgres.errors import MailgresError

Tls = Literal["starttls", "tls", "none"]

_PORTS: dict[Tls, int] = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class Server:
    """An SMTP server. Its repr does not contain the password."""

    host: str
    port: int
    tls: Tls
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def server_of(url: str) -> Server:
    """Read `smtp://user:password@host:587?tls=starttls`; user and password are percent-decoded.

    `smtps://` encrypts from the start. `smtp://` requires STARTTLS, unless the URL says `tls=none`:
    optional encryption does not protect from an attacker.
    """
    parts = urlsplit(url)
    tls = parse_qs(parts.query).get("tls", ["tls" if parts.scheme == "smtps" else "starttls"])[0]
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or tls not in _PORTS:
        raise MailgresError(
            "the value is not an SMTP URL",
            "Write it as smtp://user:password@host:587?tls=starttls; tls is starttls, tls or none.",
        )
    mode: Tls = "tls" if tls == "tls" else "none" if tls == "none" else "starttls"
    return Server(
        host=parts.hostname,
        port=parts.port or _PORTS[mode],
        tls=mode,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
    )
