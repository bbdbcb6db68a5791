"""Translates a message for Resend's API.

The same message always gives the same bytes: an idempotency key is valid for one content only.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from mailgres.providers.header import Unsendable, address, own_header, plain, readable_mailbox
from mailgres.providers.mime import check_file, sender_address, sender_mailbox
from mailgres.providers.resend.faults import TOO_LARGE
from mailgres.providers.tags import tags_of

if TYPE_CHECKING:
    from mailgres.model import Attachment, Message

LARGEST = 40 * 1024 * 1024
"""The limit of Resend: bytes of an email with its encoded attachments."""


def as_params(message: Message) -> dict[str, Any]:
    """Return the body of a call that sends this message; raise Unsendable if it is invalid."""
    _check(message)
    email = message.email
    params = {
        "from": readable_mailbox(message.from_email, "the from-address"),
        "to": list(email.to),
        "subject": message.subject,
        "html": message.html,
        "text": message.text,
        "cc": email.cc,
        "bcc": email.bcc,
        "reply_to": message.reply_to and readable_mailbox(message.reply_to, "the reply address"),
        "headers": email.headers,
        "tags": [{"name": name, "value": value} for name, value in tags_of(email)],
        "attachments": [_attachment(file) for file in message.attachments],
    }
    # An empty subject is sent; other empty fields are left out.
    return {name: value for name, value in params.items() if value or name == "subject"}


def _check(message: Message) -> None:
    """Refuse line breaks in fields, which JSON allows and Resend would put into headers.

    Also refuse messages that are too large for Resend, before they are sent.
    """
    email = message.email
    sender_address(message)
    if message.reply_to:
        sender_mailbox(message.reply_to, "the reply address")
    plain(message.subject, "the subject")
    for each in (email.recipient_email, *email.others):
        address(each, "a recipient")
    for name, value in (email.headers or {}).items():
        own_header(name, value)
    if message.attachments:
        _check_files(message)


def _check_files(message: Message) -> None:
    size = len(message.html or "") + len(message.text or "")
    for file in message.attachments:
        check_file(file)
        size += -(-len(file.content) // 3) * 4
    if size > LARGEST:
        raise Unsendable(
            TOO_LARGE,
            f"the email has {-(-size // 2**20)} MB with its attachments;"
            f" Resend accepts at most {LARGEST // 2**20}",
        )


def _attachment(file: Attachment) -> dict[str, str]:
    described = {
        "filename": file.filename,
        "content": b64encode(file.content).decode("ascii"),
        "content_type": file.content_type,
    }
    return described | ({"content_id": file.content_id} if file.content_id else {})
