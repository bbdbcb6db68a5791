"""Writes an email as a message that any server accepts: 7-bit lines, CRLF, without Bcc.

The Message-ID consists of the email's id and generation, so that all attempts have the same and
mail programs can recognise a second copy. The date is that of the attempt: an email that was
scheduled or had to wait would otherwise look old to spam filters.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING

from mailgres.providers.header import (
    Unsendable,
    address,
    line,
    mailbox,
    own_header,
    parameter,
    plain,
    split_mailbox,
    unstructured,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mailgres.model import Attachment, Message

_LONGEST_LINE = 998
_CONTENT_TYPE = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+")
_CONTENT_ID = re.compile(r"[A-Za-z0-9@._-]{1,128}")


@dataclass(frozen=True, slots=True)
class Letter:
    """The fields of a message before they are encoded."""

    from_email: str
    to: str
    subject: str
    text: str | None = None
    html: str | None = None
    also_to: Sequence[str] = ()
    cc: Sequence[str] = ()
    reply_to: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message_id: str | None = None
    date: datetime | None = None
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The sender and the recipients in the SMTP envelope. The first is `recipient_email`.

    `needs_utf8`: an address has non-ASCII letters before the @, which few servers accept.
    """

    sender: str
    recipients: tuple[str, ...]

    @property
    def needs_utf8(self) -> bool:
        """Return whether only servers with SMTPUTF8 can accept it."""
        return not all(each.isascii() for each in (self.sender, *self.recipients))


def message_id(message: Message) -> str:
    """Return the Message-ID of an email, the same for all attempts."""
    domain = sender_address(message).rpartition("@")[2]
    return f"<{message.email.id}.{message.email.generation}@{domain}>"


def sender_address(message: Message) -> str:
    """Return the plain from-address."""
    return sender_mailbox(message.from_email, "the from-address")


def sender_mailbox(text: str, field: str) -> str:
    """Return the plain address of a sender; a fault affects all emails of this sender."""
    try:
        return split_mailbox(text, field)[1]
    except Unsendable as fault:
        raise Unsendable("invalid_sender", fault.message, "config") from None


def envelope(message: Message) -> Envelope:
    """Return the envelope: the recipient, then the others, each address once."""
    email = message.email
    everybody = [
        address(email.recipient_email, "the recipient"),
        *(address(other, "another recipient") for other in email.others),
    ]
    return Envelope(sender_address(message), tuple(dict.fromkeys(everybody)))


def compose(message: Message, now: datetime | None = None) -> bytes:
    """Return the message in bytes for a server; raise Unsendable if it is invalid."""
    email = message.email
    return write(
        Letter(
            from_email=message.from_email,
            to=email.recipient_email,
            subject=message.subject,
            text=message.text,
            html=message.html,
            also_to=email.also_to or (),
            cc=email.cc or (),
            reply_to=message.reply_to,
            headers=email.headers or {},
            message_id=message_id(message),
            date=now or datetime.now(UTC),
            attachments=message.attachments,
        )
    )


def write(letter: Letter) -> bytes:
    """Return a letter as a message; raise Unsendable if it is invalid."""
    everybody = (letter.to, *letter.also_to)
    lines = [
        line("From", mailbox(letter.from_email, "the from-address")),
        line("To", ", ".join(address(each, "the recipient") for each in everybody)),
    ]
    if letter.cc:
        lines.append(line("Cc", ", ".join(address(each, "a copy's address") for each in letter.cc)))
    if letter.reply_to:
        lines.append(line("Reply-To", mailbox(letter.reply_to, "the reply address")))
    lines.append(line("Subject", unstructured(letter.subject, "the subject")))
    if letter.message_id:
        lines.append(line("Message-ID", plain(letter.message_id, "the Message-ID")))
    if letter.date:
        lines.append(line("Date", format_datetime(letter.date)))
    lines += [own_header(name, value) for name, value in letter.headers.items()]
    return "".join([*lines, line("MIME-Version", "1.0")]).encode() + _body(letter)


def _body(letter: Letter) -> bytes:
    """Return the parts: the texts with inline files, and the other files."""
    inline = [file for file in letter.attachments if file.content_id and letter.html]
    others = [file for file in letter.attachments if file not in inline]
    texts = [_text("plain", letter.text or "")] if letter.text or not letter.html else []
    if letter.html:
        html = _text("html", letter.html)
        texts.append(_multipart("related", [html, *map(_inline, inline)]) if inline else html)
    body = texts[0] if len(texts) == 1 else _multipart("alternative", texts)
    return _multipart("mixed", [body, *map(_attached, others)]) if others else body


def _multipart(subtype: str, parts: Sequence[bytes]) -> bytes:
    # "=_" cannot be in an encoded part, and the rest is random.
    boundary = f"=_{secrets.token_hex(15)}"
    mark = f"--{boundary}".encode()
    head = f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"\r\n\r\n'.encode()
    return head + b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"


def _text(subtype: str, text: str) -> bytes:
    content = b"\r\n".join(text.encode("utf-8", "replace").splitlines()) + b"\r\n"
    head = f'Content-Type: text/{subtype}; charset="utf-8"\r\nContent-Transfer-Encoding: '.encode()
    if content.isascii() and max(map(len, content.split(b"\r\n"))) <= _LONGEST_LINE:
        return head + b"7bit\r\n\r\n" + content
    quoted = re.sub(rb"\r?\n", b"\r\n", binascii.b2a_qp(content, istext=True))
    encoded = _base64(content)
    if len(quoted) <= len(encoded):
        return head + b"quoted-printable\r\n\r\n" + quoted
    return head + b"base64\r\n\r\n" + encoded


def _inline(file: Attachment) -> bytes:
    return _file(file, "inline")


def _attached(file: Attachment) -> bytes:
    return _file(file, "attachment")


def check_file(file: Attachment) -> None:
    """Refuse a file with a field that could add a line."""
    if not _CONTENT_TYPE.fullmatch(file.content_type):
        raise Unsendable("invalid_attachment", "an attachment has an invalid content type")
    if file.content_id and not _CONTENT_ID.fullmatch(file.content_id):
        raise Unsendable("invalid_attachment", "an attachment has an invalid content id")
    plain(file.filename, "the name of an attachment")


def _file(file: Attachment, disposition: str) -> bytes:
    check_file(file)
    # Messages and multiparts must not be in base64; as plain bytes they can still be saved.
    structured = file.content_type.lower().startswith(("message/", "multipart/"))
    head = [
        line("Content-Type", "application/octet-stream" if structured else file.content_type),
        "Content-Transfer-Encoding: base64\r\n",
        f"Content-Disposition: {disposition}",
        parameter("filename", file.filename, "the name of an attachment"),
        "\r\n",
    ]
    if file.content_id:
        head.append(f"Content-ID: <{file.content_id}>\r\n")
    return "".join([*head, "\r\n"]).encode() + _base64(file.content)


def _base64(content: bytes) -> bytes:
    return base64.encodebytes(content).replace(b"\n", b"\r\n")
