"""One connection to an SMTP server, and the steps of a message on it.

A fault names its step, because the step decides what is known: before the final dot nothing was
sent, after it the message may have been accepted.
"""

from __future__ import annotations

import re
import smtplib
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from mailgres.providers.smtp import faults as codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.providers.mime import Envelope
    from mailgres.providers.smtp.client import Deadline

T = TypeVar("T")
Step = Literal["connect", "login", "mail", "rcpt", "data", "end"]

_OK = range(200, 300)
_REPLIES = range(400, 600)
_FINAL = range(500, 600)
_GO_AHEAD = 354
_CLOSING = 421
_LONGEST_REPLY = 2000
_LONGEST_SIZE = 18  # digits
_ENHANCED = re.compile(r"\s*([245]\.\d{1,3}\.\d{1,3})\b")


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the server."""

    status: int
    text: str

    @property
    def enhanced(self) -> str | None:
        """The enhanced status code, such as 5.1.1."""
        match = _ENHANCED.match(self.text)
        return match[1] if match else None


class SmtpFault(Exception):
    """A step failed, with a reply of the server or with a code of mailgres."""

    def __init__(self, step: Step, code: str | None, reply: Reply) -> None:
        self.step = step
        self.code = code
        self.reply = reply
        super().__init__(f"{step}: {code or reply.status}")

    @property
    def usable(self) -> bool:
        """Return whether the connection is usable: the server refused and waits for commands."""
        return self.reply.status in _REPLIES and self.reply.status != _CLOSING

    @property
    def stale(self) -> bool:
        """Return whether the connection was closed before the message started."""
        return self.step in {"mail", "rcpt"} and not self.usable


class Session:
    """A logged-in connection. Only one thread at a time uses it."""

    def __init__(self, smtp: Deadline) -> None:
        self._smtp = smtp
        self.sent = 0
        self.used_at = time.monotonic()

    @property
    def largest(self) -> int:
        """The largest message that the server accepts; 0 if it does not say."""
        announced = self._smtp.esmtp_features.get("size", "")
        is_number = announced.isdecimal() and len(announced) <= _LONGEST_SIZE
        return int(announced) if is_number else 0

    @property
    def takes_utf8(self) -> bool:
        """Return whether addresses may have non-ASCII letters before the @."""
        return self._smtp.has_extn("smtputf8")

    def transmit(self, envelope: Envelope, data: bytes, timeout: float) -> dict[str, Reply]:
        """Send a message; return the replies for copies that are refused permanently.

        The first recipient has to be accepted. A copy that is refused permanently is left out, and
        the message is sent. A copy that is refused temporarily delays the whole message, because
        it could not be sent later alone.
        """
        deadline = time.monotonic() + timeout
        self._check(envelope, data)
        options = self._options(envelope, data)
        self._ask("mail", deadline, lambda: self._smtp.mail(envelope.sender, options))
        own, *copies = envelope.recipients
        self._ask("rcpt", deadline, lambda: self._smtp.rcpt(own))
        replies = {copy: self._copy(copy, deadline) for copy in copies}
        refused = {copy: reply for copy, reply in replies.items() if reply.status not in _OK}
        self._content(data, deadline)
        self.sent += 1
        self.used_at = time.monotonic()
        return refused

    def reset(self, timeout: float) -> bool:
        """Reset after a failed message; return whether the connection is still usable."""
        self.used_at = time.monotonic()
        try:
            self._ask("mail", time.monotonic() + timeout, self._smtp.rset)
        except SmtpFault:
            return False
        return True

    def greet(self) -> None:
        """Send NOOP."""
        self._ask("login", None, self._smtp.noop)

    def close(self) -> None:
        """Send QUIT without waiting for a reply: the server may be gone."""
        with suppress(OSError):
            self._smtp.putcmd("QUIT")
        self._smtp.close()

    def drop(self) -> None:
        """Close without QUIT: the server might read it as part of the message."""
        self._smtp.close()

    def _check(self, envelope: Envelope, data: bytes) -> None:
        if self.largest and len(data) > self.largest:
            text = f"the email has {len(data)} bytes, the server accepts at most {self.largest}"
            raise SmtpFault("mail", codes.TOO_LARGE, Reply(552, text))
        if envelope.needs_utf8 and not self.takes_utf8:
            text = "an address needs SMTPUTF8, which the server does not support"
            raise SmtpFault("mail", codes.NO_UTF8, Reply(553, text))

    def _options(self, envelope: Envelope, data: bytes) -> list[str]:
        options = [f"SIZE={len(data)}"] if self._smtp.has_extn("size") else []
        return [*options, "BODY=8BITMIME", "SMTPUTF8"] if envelope.needs_utf8 else options

    def _copy(self, recipient: str, deadline: float) -> Reply:
        try:
            return self._ask("rcpt", deadline, lambda: self._smtp.rcpt(recipient))
        except SmtpFault as fault:
            if fault.reply.status in _FINAL and fault.code is None:
                return fault.reply
            raise

    def _content(self, data: bytes, deadline: float) -> None:
        reply = self._ask("data", deadline, lambda: self._smtp.docmd("DATA"), _GO_AHEAD)
        if reply.status != _GO_AHEAD:
            raise SmtpFault("data", codes.LOST, reply)
        # The dot is sent separately: if this fails, the message was not completed and not sent.
        self._do("data", deadline, lambda: self._smtp.send(_dotted(data)))
        self._ask("end", deadline, self._finish)

    def _finish(self) -> tuple[int, bytes]:
        self._smtp.send(b".\r\n")
        return self._smtp.getreply()

    def _ask(
        self,
        step: Step,
        deadline: float | None,
        ask: Callable[[], tuple[int, bytes]],
        expected: int | None = None,
    ) -> Reply:
        status, text = self._do(step, deadline, ask)
        reply = Reply(status, _words(text))
        if status in _OK or status == expected:
            return reply
        if status in _REPLIES:
            raise SmtpFault(step, None, reply)
        raise SmtpFault(step, codes.NOT_UNDERSTOOD if step == "end" else codes.LOST, reply)

    def _do(self, step: Step, deadline: float | None, act: Callable[[], T]) -> T:
        if deadline is not None and self._smtp.sock:
            self._smtp.deadline = deadline
            self._smtp.sock.settimeout(self._smtp.time_left())
        try:
            return act()
        except OSError as error:  # smtplib's own exceptions are OSErrors, too
            code = codes.LOST_AFTER_DATA if step == "end" else codes.LOST
            raise SmtpFault(step, code, Reply(0, words_of(error))) from error


def words_of(error: OSError) -> str:
    """Return the text of an error in one line."""
    if isinstance(error, smtplib.SMTPResponseException):
        return _words(error.smtp_error)
    return (error.strerror or str(error) or type(error).__name__)[:_LONGEST_REPLY]


def _words(said: bytes | str) -> str:
    """Return the text of a reply, cut to a limit."""
    cut = said[:_LONGEST_REPLY]
    return cut.decode("utf-8", "replace") if isinstance(cut, bytes) else cut


def _dotted(data: bytes) -> bytes:
    """Return the message with dots escaped, as DATA requires."""
    return re.sub(rb"(?m)^\.", b"..", data)
