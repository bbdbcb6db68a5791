"""A message in the words of Resend's API.

The same message always gives the same words: an idempotency key holds for one content only.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.model import Attachment, Message

OUR_TAG = "mailgres_id"
"""The tag that carries the email's id, so that webhooks and people find it."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_TAG = 256


def as_params(message: Message) -> dict[str, Any]:
    """The body of a call that sends this message."""
    email = message.email
    params = {
        "from": message.from_email,
        "to": [email.recipient_email],
        "subject": message.subject,
        "html": message.html,
        "text": message.text,
        "cc": email.cc,
        "bcc": email.bcc,
        "reply_to": message.reply_to,
        "headers": email.headers,
        "tags": tags(email.tags or {}, str(email.id)),
        "attachments": [_attachment(file) for file in message.attachments],
    }
    # A subject may be empty; the others are then left out.
    return {name: value for name, value in params.items() if value or name == "subject"}


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
