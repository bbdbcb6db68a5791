"""An email of the queue as the message that a worker would make of it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mailgres.errors import MailgresError
from mailgres.model import ClaimedEmail, Outcome
from mailgres.providers.header import Unsendable
from mailgres.providers.mime import compose
from mailgres.sender.render import Renderer
from mailgres.worker.store import Store

if TYPE_CHECKING:
    from mailgres.model import Message
    from mailgres.settings import Settings

_NOBODY = UUID(int=0)


def message_of(found: dict[str, Any], settings: Settings) -> Message:
    """Render an email that was found in the queue or in the archive."""
    if found["archived_at"] and found["attachments"]:
        raise MailgresError(
            "The archive has not kept the files of this email, so it cannot be rendered whole",
            "`mailgres show` without --rendered or --eml says which files there were.",
        )
    store = Store(settings.database_url or "", worker="command line", connections=1)
    try:
        (made,) = Renderer(store, settings.from_email, settings.reply_to).render([_email(found)])
    finally:
        store.close()
    if isinstance(made, Outcome):
        raise MailgresError(
            f"It cannot be rendered: {made.result.message}", "A try would end the same way."
        )
    return made


def as_file(message: Message) -> bytes:
    """The raw message."""
    try:
        return compose(message)
    except Unsendable as fault:
        raise MailgresError(
            f"It cannot be written: {fault.message}", "A try would end the same way."
        ) from None


def written(message: Message) -> dict[str, Any]:
    """The message for people and for programs."""
    email = message.email
    return {
        "from": message.from_email,
        "to": email.recipient_email,
        "also_to": email.also_to,
        "cc": email.cc,
        "bcc": email.bcc,
        "reply_to": message.reply_to,
        "subject": message.subject,
        "text": message.text,
        "html": message.html,
        "template_version": email.template_version,
    }


def _email(found: dict[str, Any]) -> ClaimedEmail:
    row = found["email"]
    email: dict[str, Any] = {field.name: row.get(field.name) for field in fields(ClaimedEmail)}
    email |= {
        "id": UUID(row["id"]),
        "lease_token": _NOBODY,
        "template_version": row["template_version"] or found["active_version"],
        "payload": json.dumps(row["payload"]),
        "provider": row["provider"] or "",
        "has_attachments": bool(found["attachments"]),
        "batch_id": None,
        "alone": False,
    }
    return ClaimedEmail(**email)
