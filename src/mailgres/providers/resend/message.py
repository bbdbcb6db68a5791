"""A message in the words of Resend's API.

The same message always gives the same words: an idempotency key holds for one content only.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from mailgres.providers.header import Unsendable, address, own_header, plain, readable_mailbox
from mailgres.providers.mime import check_file, sender_address, sender_mailbox
from mailgres.providers.resend.faults import TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.model import Attachment, Message

OUR_TAG = "mailgres_id"
"""The tag that carries the email's id, so that webhooks and people find it."""

LARGEST = 40 * 1024 * 1024
"""What Resend takes at most: bytes of an email with its files encoded."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_TAG = 256


def as_params(message: Message) -> dict[str, Any]:
    """The body of a call that sends this message; raises Unsendable."""
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
        "tags": tags(email.tags or {}, str(email.id)),
        "attachments": [_attachment(file) for file in message.attachments],
    }
    # A subject may be empty; the others are then left out.
    return {name: value for name, value in params.items() if value or name == "subject"}


def _check(message: Message) -> None:
    """Refuse what breaks out of its field: in JSON it is a letter like others, at Resend it is not.

    And what Resend would refuse after all of it was sent there.
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
            f"the email has {-(-size // 2**20)} MB with its files encoded;"
            f" Resend takes at most {LARGEST // 2**20}",
        )


def tags(given: Mapping[str, str], queue_id: str) -> list[dict[str, str]]:
    """The tags as Resend takes them, ours first.

    Tags are for statistics, so one that Resend would refuse is bent into shape rather than the
    email lost: other characters become `_`, the rest is cut off, empty ones are left out.
    """
    bent = {OUR_TAG: queue_id}
    for name, value in sorted(given.items()):
        bent.setdefault(_tag(name), _tag(value))
    return [{"name": name, "value": value} for name, value in bent.items() if name and value]


def _tag(text: str) -> str:
    return _NOT_IN_TAGS.sub("_", str(text))[:_LONGEST_TAG]


def _attachment(file: Attachment) -> dict[str, str]:
    described = {
        "filename": file.filename,
        "content": b64encode(file.content).decode("ascii"),
        "content_type": file.content_type,
    }
    return described | ({"content_id": file.content_id} if file.content_id else {})
