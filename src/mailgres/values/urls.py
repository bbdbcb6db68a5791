"""URLs that may hold a password: checked without a network, shown without the password."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mailgres.values.kinds import MASK, BadValue, Kind, Text

# Strict on purpose. A password with an unencoded `/`, `?`, `#` or `@` moves the borders between
# the parts, and a part that may be shown would then hold a piece of the password: such a URL does
# not match and is masked as a whole.
_ONE_HOST = r"(?:\[[0-9a-f:.%]+\]|[\w.%-]+)?(?::\d*)?"
_ONE_OPTION = r"\w+=[^&=?\#@\s]*"
_URL = re.compile(
    rf"""(?P<scheme>[a-z][a-z0-9+]*)://
    (?:(?P<user>[^:/?\#@\s]*)(?::(?P<password>[^/?\#@\s]*))?@)?
    (?P<hosts>{_ONE_HOST}(?:,{_ONE_HOST})*)
    (?P<path>/[^?\#@\s]*)?
    (?:\?(?P<query>{_ONE_OPTION}(?:&{_ONE_OPTION})*))?""",
    re.VERBOSE | re.IGNORECASE,
)
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[\w.-]+)(?::(\d{1,5}))?", re.ASCII | re.IGNORECASE)
_HARMLESS = {"sslmode", "connect_timeout", "application_name", "target_session_attrs", "tls"}
_THIS_MACHINE = {"localhost", "127.0.0.1", "[::1]"}
_HIGHEST_PORT = 65535


def masked(url: str) -> str:
    """Return a URL without its password, or only the mask if the password might be anywhere."""
    match = _URL.fullmatch(url.strip())
    if not match:
        return MASK
    user = match["user"] or ""
    if match["password"] is not None:
        user += f":{MASK}"
    return "".join(
        (
            f"{match['scheme']}://",
            f"{user}@" if user else "",
            match["hosts"],
            match["path"] or "",
            f"?{_masked_query(match['query'])}" if match["query"] else "",
        )
    )


def _masked_query(query: str) -> str:
    pairs = (pair.partition("=") for pair in query.split("&"))
    return "&".join(
        f"{key}={value if key.lower() in _HARMLESS else MASK}" for key, _, value in pairs
    )


@dataclass(frozen=True, slots=True)
class DatabaseUrl(Kind[str]):
    """The URL of a database. `mailgres.database` finds out whether libpq understands it."""

    metavar = "URL"
    allowed = "postgresql://user:password@host:5432/database"

    def parse(self, given: object) -> str:
        """Parse any one-line text."""
        return Text().parse(given)

    def mask(self, value: str) -> str:
        """Hide the password."""
        return masked(value)


@dataclass(frozen=True, slots=True)
class SmtpUrl(Kind[str]):
    """An SMTP server, how to log in and how to encrypt."""

    metavar = "URL"
    allowed = (
        "smtp://user:password@host:587?tls=starttls (tls is starttls, tls or none),"
        " special characters of the password percent-encoded"
    )

    def parse(self, given: object) -> str:
        """Parse a URL with one host and no option but `tls`."""
        url = Text().parse(given)
        match = _URL.fullmatch(url)
        if not match or match["scheme"].lower() not in {"smtp", "smtps"}:
            raise BadValue("the value is not an SMTP URL")
        _check_host(match["hosts"])
        if (match["path"] or "/") != "/":
            raise BadValue("an SMTP URL has nothing after the host but ?tls=…")
        if (match["query"] or "tls=none") not in {"tls=starttls", "tls=tls", "tls=none"}:
            raise BadValue("the only option of an SMTP URL is tls")
        return url

    def mask(self, value: str) -> str:
        """Hide the password."""
        return masked(value)


@dataclass(frozen=True, slots=True)
class ApiUrl(Kind[str]):
    """The URL of a provider's API. Keys are sent there, so it must be encrypted."""

    metavar = "URL"
    allowed = "https://host/path (http:// only for this machine), without user or options"

    def parse(self, given: object) -> str:
        """Parse a URL that holds no secret; a trailing slash is ignored."""
        url = Text().parse(given)
        match = _URL.fullmatch(url)
        if not match or match["scheme"].lower() not in {"http", "https"}:
            raise BadValue("the value is not an http URL")
        if match["user"] is not None or match["query"] is not None:
            raise BadValue("the URL holds a user or options")
        host = _check_host(match["hosts"])
        if match["scheme"].lower() == "http" and host.lower() not in _THIS_MACHINE:
            raise BadValue("the URL would send the key unencrypted")
        return url.rstrip("/")


@dataclass(frozen=True, slots=True)
class WebhookUrl(Kind[str]):
    """A URL that gets notifications. Often anybody who knows it may call it: it is a secret."""

    metavar = "URL"
    allowed = "https://host/path (http:// only for this machine)"

    def parse(self, given: object) -> str:
        """Parse a URL whose secret is not sent unencrypted."""
        url = Text().parse(given)
        match = _URL.fullmatch(url)
        if not match or match["scheme"].lower() not in {"http", "https"}:
            raise BadValue("the value is not an http URL")
        host = _check_host(match["hosts"])
        if match["scheme"].lower() == "http" and host.lower() not in _THIS_MACHINE:
            raise BadValue("the URL would be called unencrypted")
        return url

    def mask(self, value: str) -> str:
        """Show only the host."""
        match = _URL.fullmatch(value)
        return f"{match['scheme']}://{match['hosts']}/{MASK}" if match else MASK


def _check_host(hosts: str) -> str:
    match = _HOST.fullmatch(hosts)
    if not match:
        raise BadValue("the URL does not name one host")
    if match[2] and not 0 < int(match[2]) <= _HIGHEST_PORT:
        raise BadValue("the URL's port is not valid")
    return match[1]
