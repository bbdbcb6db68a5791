"""Sends through any SMTP server.

SMTP has no idempotency keys, so a message is sent once. The Message-ID is the same for all
attempts, so that most mail programs hide a second copy.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from mailgres.model import RefusedCopy, Result
from mailgres.providers.base import Capabilities
from mailgres.providers.faults import UNKNOWN, classify
from mailgres.providers.mime import compose, envelope, message_id
from mailgres.providers.prepare import prepare
from mailgres.providers.smtp import faults as codes
from mailgres.providers.smtp.connect import connect
from mailgres.providers.smtp.faults import SMTP_RULES
from mailgres.providers.smtp.pool import Pool
from mailgres.providers.smtp.server import server_of
from mailgres.providers.smtp.session import SmtpFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Message
    from mailgres.providers.mime import Envelope
    from mailgres.providers.smtp.session import Reply, Session

log = logging.getLogger(__name__)

_REFUSALS = range(500, 600)
_ABOUT_THE_SENDER = frozenset({550, 551, 553, 554})


class SmtpProvider:
    """Sends through one server, with a connection pool.

    `context` decides which certificates are trusted; the default is those of the system.
    """

    kind = "smtp"
    capabilities = Capabilities(batch_size=1, idempotent=False)

    def __init__(
        self,
        url: str,
        *,
        name: str = "smtp",
        timeout: float = 30.0,
        connections: int = 10,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self._server = server_of(url)
        self._timeout = timeout
        self._context = context or ssl.create_default_context()
        self._pool = Pool(connections)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send the messages, one SMTP transaction each."""
        return [self._send(message) for message in messages]

    def limits(self) -> None:
        """Return None: SMTP servers do not report limits."""

    def check(self) -> Result:
        """Connect, encrypt, log in and send NOOP."""
        try:
            session = self._connect()
            try:
                session.greet()
            finally:
                session.close()
        except SmtpFault as fault:
            return self._result(fault, recipients=0)
        return Result("sent", untried=None if self._server.user else "its URL has none")

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _send(self, message: Message) -> Result:
        ready = prepare(lambda each: (envelope(each), compose(each), message_id(each)), message)
        if isinstance(ready, Result):
            return ready
        who, data, name = ready
        try:
            refused = self._hand_over(message, who, data)
        except SmtpFault as fault:
            return self._result(fault, len(who.recipients))
        return Result("sent", name, refused_copies=refused)

    def _hand_over(self, message: Message, who: Envelope, data: bytes) -> tuple[RefusedCopy, ...]:
        """Use an idle connection, or a new one if that was closed: nothing was sent then."""
        waiting = self._pool.take()
        if waiting is not None:
            try:
                return self._transmit(waiting, message, who, data)
            except SmtpFault as fault:
                if not fault.stale:
                    raise
        return self._transmit(self._connect(), message, who, data)

    def _connect(self) -> Session:
        return connect(self._server, self._context, self._timeout)

    def _transmit(
        self, session: Session, message: Message, who: Envelope, data: bytes
    ) -> tuple[RefusedCopy, ...]:
        """Send the message, and keep the connection if its state is certain."""
        try:
            refused = session.transmit(who, data, self._timeout)
        except SmtpFault as fault:
            if fault.usable and session.reset(self._timeout):
                self._pool.put(session)
            else:
                session.drop()
            raise
        self._pool.put(session)
        copies = tuple(_refused_copy(address, reply) for address, reply in refused.items())
        for copy in copies:
            log.warning(
                "a copy was refused and left out",
                extra={
                    "action": "send",
                    "provider": self.name,
                    "jobId": str(message.email.id),
                    "code": copy.code,
                },
            )
        return copies

    def _result(self, fault: SmtpFault, recipients: int) -> Result:
        reply = fault.reply
        rule = classify(SMTP_RULES, status=reply.status, code=_code(fault), text=reply.text)
        code = fault.code or reply.enhanced or str(reply.status)
        if rule is UNKNOWN:
            log.warning(
                "unknown fault of an SMTP server; treated as transient",
                extra={"action": "classify", "provider": self.name, "code": code},
            )
        # Only in this step is the reply about this address.
        about_recipient = fault.step == "rcpt" or (fault.step == "end" and recipients == 1)
        return Result(
            rule.verdict,
            code=code,
            message=reply.text or rule.meaning,
            detail=f"{fault.step}: {reply.status or fault.code} {reply.text}".strip(),
            account=rule.scope == "account",
            pinned=rule.pinned,
            suppress=rule.suppress and about_recipient,
        )


def _refused_copy(address: str, reply: Reply) -> RefusedCopy:
    return RefusedCopy(
        code=reply.enhanced or str(reply.status),
        message=reply.text,
        detail=f"{address}: {reply.status} {reply.text}".strip(),
    )


def _code(fault: SmtpFault) -> str | None:
    """Return the code for the rules: the same reply has different meanings in different steps."""
    status = fault.reply.status
    if fault.code is not None:
        return fault.code
    if fault.step in {"connect", "login"} and status in _REFUSALS:
        return codes.NOT_WELCOME
    if fault.step == "mail" and status in _ABOUT_THE_SENDER and fault.reply.enhanced is None:
        return codes.SENDER_REFUSED
    return fault.reply.enhanced
