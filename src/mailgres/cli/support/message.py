"""Render an email as a worker would."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mailgres.errors import MailgresError
from mailgres.model import ClaimedEmail, Outcome
from mailgres.providers.capture.provider import as_json
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
            "The archive does not keep attachments, so this email cannot be rendered",
            "`mailgres show` without --rendered or --eml lists the attachments.",
        )
    store = Store(settings.database_url or "", worker="command line", connections=1)
    try:
        (made,) = Renderer(store, settings.from_email, settings.reply_to).render([_email(found)])
    finally:
        store.close()
    if isinstance(made, Outcome):
        raise MailgresError(
            f"It cannot be rendered: {made.result.message}",
            "An attempt would fail in the same way.",
        )
    return made


def as_file(message: Message) -> bytes:
    """Return the raw message."""
    try:
        return compose(message)
    except Unsendable as fault:
        raise MailgresError(
            f"It cannot be written: {fault.message}", "An attempt would fail in the same way."
        ) from None


def written(message: Message) -> dict[str, Any]:
    """Return the fields of a message to show."""
    return {**as_json(message), "template_version": message.email.template_version}


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
