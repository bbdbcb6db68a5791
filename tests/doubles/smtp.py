"""An SMTP server on 127.0.0.1: aiosmtpd with faults on order, and a record of what it accepted.

with serve(SmtpDouble(user="me", password="pw", tls="starttls")) as double:
    double.add_faults(Fault("rcpt", "550 5.1.1 no such user"))
    SmtpProvider(double.url, context=double.trust())
"""
# ruff: noqa: N802 - the names of commands are aiosmtpd's

from __future__ import annotations

import asyncio
import email
import email.policy
import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import quote

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from doubles.double import Double

Step = Literal[
    "greeting", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "body", "end", "noop"
]


@dataclass
class Fault:
    """A fault at a step of the next messages.

    `reply`: what the server says instead; without one, it hangs up. `delay`: seconds before that.
    `accepts`: the message is still sent (at `end`). `to`: only for this recipient.
    `times`: how many messages it meets (-1: all); `share`: the part of them it meets.
    """

    step: Step
    reply: str | None = None
    accepts: bool = False
    delay: float = 0.0
    to: str | None = None
    times: int = 1
    share: float = 1.0


@dataclass(frozen=True)
class Accepted:
    """A message that was sent."""

    message_id: str
    sender: str
    recipients: tuple[str, ...]
    content: bytes

    @property
    def mailgres_id(self) -> str:
        """The email's id, from the Message-ID."""
        return self.message_id.lstrip("<").partition(".")[0]

    @property
    def parsed(self) -> EmailMessage:
        """The message as an email client sees it."""
        return email.message_from_bytes(self.content, policy=email.policy.default)


class SmtpDouble(Double[Fault, Accepted]):
    """The server."""

    def __init__(
        self,
        *,
        tls: Literal["none", "starttls", "tls"] = "none",
        user: str | None = None,
        password: str = "",
        largest: int | None = None,
        utf8: bool = True,
    ) -> None:
        super().__init__()
        self.tls = tls
        self.user, self.password = user, password
        self.largest, self.utf8 = largest, utf8
        self.port = 0
        self.commands: Counter[str] = Counter()
        self.certificate = Path()
        self.transports: set[asyncio.BaseTransport] = set()
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        return f"smtp://{login}127.0.0.1:{self.port}?tls={self.tls}"

    def trust(self) -> ssl.SSLContext:
        """Return a client's context that trusts only this server."""
        return ssl.create_default_context(cafile=str(self.certificate))

    @staticmethod
    def _email_of(accepted: Accepted) -> str:
        return accepted.mailgres_id

    def _counts(self) -> dict[str, Any]:
        return {"connections": self.connections}

    def next_fault(self, step: Step, argument: str = "") -> Fault | None:
        """Return the fault of this step, if there is one."""
        return self._take_fault(
            lambda fault: fault.step == step and (not fault.to or fault.to in argument)
        )

    def accept(self, envelope: Envelope) -> None:
        """Keep a message."""
        content = bytes(envelope.original_content or b"")
        found = re.search(rb"(?mi)^message-id: (\S+)", content)
        with self._lock:
            self._accepted.append(
                Accepted(
                    found[1].decode() if found else "",
                    envelope.mail_from or "",
                    tuple(map(str, envelope.rcpt_tos)),
                    content,
                )
            )

    def hang_up(self) -> None:
        """Close all connections, as a server does with idle ones."""
        assert self.loop is not None
        for transport in list(self.transports):
            self.loop.call_soon_threadsafe(transport.close)
        self.transports.clear()


class _Server(SMTP):
    def __init__(self, double: SmtpDouble, context: ssl.SSLContext | None) -> None:
        self.double = double
        super().__init__(
            _Handler(double),
            data_size_limit=double.largest or 0,
            enable_SMTPUTF8=double.utf8,
            tls_context=context if double.tls == "starttls" else None,
            require_starttls=double.tls == "starttls",
            auth_require_tls=double.tls == "starttls",
            authenticator=self._login if double.user else None,
            auth_exclude_mechanism=None if double.user else ("LOGIN", "PLAIN"),
            hostname="double.example",
            loop=asyncio.get_running_loop(),
        )
        self._auth_required = double.user is not None

    def _login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        del server, session, envelope, mechanism
        assert isinstance(data, LoginPassword)
        expected = (self.double.user or "").encode(), self.double.password.encode()
        return AuthResult(success=(data.login, data.password) == expected, handled=False)

    async def _handle_client(self) -> None:
        self.double.connections += 1
        assert self.transport is not None
        self.double.transports.add(self.transport)
        if not await self.fails("greeting"):
            await super()._handle_client()

    async def fails(self, step: Step, argument: str | None = None) -> bool:
        """Let a step fail, if it has a fault."""
        self.double.commands[step] += 1
        fault = self.double.next_fault(step, argument or "")
        if fault is None:
            return False
        await asyncio.sleep(fault.delay)
        if fault.reply is not None:
            await self.push(fault.reply)
        elif self.transport is not None:
            self.transport.abort()  # type: ignore[attr-defined]
            raise asyncio.CancelledError
        if fault.reply and (fault.reply.startswith("421") or step == "greeting"):
            assert self.transport is not None
            self.transport.close()
        return True

    async def smtp_EHLO(self, hostname: str) -> None:
        if not await self.fails("ehlo"):
            await super().smtp_EHLO(hostname)

    async def smtp_STARTTLS(self, arg: str) -> None:
        if not await self.fails("starttls"):
            await super().smtp_STARTTLS(arg)

    async def smtp_AUTH(self, arg: str) -> None:
        if not await self.fails("auth"):
            await super().smtp_AUTH(arg)

    async def smtp_NOOP(self, arg: str) -> None:
        if not await self.fails("noop"):
            await super().smtp_NOOP(arg)

    async def smtp_MAIL(self, arg: str | None) -> None:
        if not await self.fails("mail", arg):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str | None) -> None:
        if not await self.fails("rcpt", arg):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:
        if await self.fails("data"):
            return
        if (fault := self.double.next_fault("body")) is not None:
            # Read a part of the message and hang up.
            await self.push("354 go on")
            await self._reader.read(1000)
            await asyncio.sleep(fault.delay)
            assert self.transport is not None
            self.transport.abort()  # type: ignore[attr-defined]
            raise asyncio.CancelledError
        await super().smtp_DATA(arg)


class _Handler:
    def __init__(self, double: SmtpDouble) -> None:
        self.double = double

    async def handle_DATA(self, server: _Server, session: Session, envelope: Envelope) -> str:
        del session
        fault = self.double.next_fault("end")
        if fault is None or fault.accepts:
            self.double.accept(envelope)
        if fault is None:
            return "250 2.0.0 taken"
        await asyncio.sleep(fault.delay)
        if fault.reply is None:
            assert server.transport is not None
            server.transport.abort()  # type: ignore[attr-defined]
            raise asyncio.CancelledError
        return fault.reply


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


@contextmanager
def serve(double: SmtpDouble) -> Iterator[SmtpDouble]:
    """Let a double answer in a thread of this process."""
    with TemporaryDirectory() as directory:
        context = None
        if double.tls != "none":
            double.certificate, key = make_certificate(Path(directory))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(double.certificate, key)
        with _running(double, context):
            yield double


@contextmanager
def _running(double: SmtpDouble, context: ssl.SSLContext | None) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await loop.create_server(
            lambda: _Server(double, context),
            "127.0.0.1",
            0,
            ssl=context if double.tls == "tls" else None,
        )

    async def stop(server: asyncio.Server) -> None:
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for transport in double.transports:
            transport.abort()  # type: ignore[attr-defined]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    double.port = server.sockets[0].getsockname()[1]
    double.loop = loop
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
