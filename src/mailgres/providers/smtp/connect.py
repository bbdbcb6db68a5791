"""Opens connections to an SMTP server: connects, encrypts and logs in."""

from __future__ import annotations

import smtplib
import socket
import ssl
from functools import cache
from typing import TYPE_CHECKING

from mailgres.providers.smtp import faults as codes
from mailgres.providers.smtp.client import Client, TlsClient
from mailgres.providers.smtp.session import Reply, Session, SmtpFault, words_of

if TYPE_CHECKING:
    from mailgres.providers.smtp.client import Deadline
    from mailgres.providers.smtp.server import Server

_FINAL = range(500, 600)
_REPLIES = range(400, 600)
# The server closed the connection: it may be busy, so this is not a fault of the configuration.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


def connect(server: Server, context: ssl.SSLContext, timeout: float) -> Session:
    """Return a connection that is encrypted as configured and logged in, or raise SmtpFault."""
    try:
        smtp = _greeted(server, context, timeout)
    except (OSError, ValueError) as error:
        raise _fault(error) from error
    try:
        _prepare(smtp, server, context)
    except (OSError, ValueError) as error:
        smtp.close()
        raise _fault(error) from error
    except SmtpFault:
        smtp.close()
        raise
    return Session(smtp)


def _greeted(server: Server, context: ssl.SSLContext, timeout: float) -> Deadline:
    if server.tls == "tls":
        return TlsClient(server.host, server.port, _our_name(), timeout=timeout, context=context)
    return Client(server.host, server.port, _our_name(), timeout=timeout)


def _prepare(smtp: smtplib.SMTP, server: Server, context: ssl.SSLContext) -> None:
    if smtp.sock:
        # The final dot is a packet of its own and must not wait for the ACK of the one before.
        smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    smtp.ehlo_or_helo_if_needed()
    if server.tls == "starttls":
        if not smtp.has_extn("starttls"):
            raise _wrong(
                codes.NO_STARTTLS,
                "the server does not offer STARTTLS; to allow plain text, add ?tls=none",
            )
        smtp.starttls(context=context)
        smtp.ehlo_or_helo_if_needed()
    if server.user is not None:
        _log_in(smtp, server.user, server.password or "")


def _log_in(smtp: smtplib.SMTP, user: str, password: str) -> None:
    try:
        smtp.login(user, password)
    except UnicodeError:
        raise _wrong(codes.NO_LOGIN, "user or password has non-ASCII letters") from None
    except smtplib.SMTPResponseException:
        raise
    except smtplib.SMTPServerDisconnected:
        raise
    except smtplib.SMTPException as error:  # no AUTH, or no mechanism that smtplib supports
        raise _wrong(codes.NO_LOGIN, str(error)) from error


def _wrong(code: str, text: str) -> SmtpFault:
    return SmtpFault("login", code, Reply(0, text))


def _fault(error: Exception) -> SmtpFault:
    if isinstance(error, smtplib.SMTPResponseException) and error.smtp_code in _REPLIES:
        reply = Reply(error.smtp_code, words_of(error))
        return SmtpFault("login", None, reply)
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the server's certificate is not trusted: {error.verify_message}"
        return _wrong(codes.CERTIFICATE, text)
    if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
        return _wrong(codes.TLS, f"the connection could not be encrypted: {error.reason}")
    text = words_of(error) if isinstance(error, OSError) else str(error)
    return SmtpFault("connect", codes.NO_CONNECTION, Reply(0, text))


@cache
def _our_name() -> str:
    """Return our name for EHLO; DNS is asked once, not for every connection."""
    name = socket.getfqdn()
    return name if "." in name else "[127.0.0.1]"
