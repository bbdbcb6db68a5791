"""Messages for tests of providers, which need no database."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from mailgres.model import Attachment, ClaimedEmail, Message

PDF = Attachment("a.pdf", "application/pdf", None, b"%PDF")
_EMAIL: dict[str, Any] = {
    "tenant_id": "default",
    "template_type": "welcome",
    "template_version": 1,
    "recipient_email": "ana@example.org",
    "payload": "{}",
    "retries": 0,
    "max_retries": 3,
    "generation": 0,
    "provider": "resend",
    "priority": 5,
    "from_email": None,
    "reply_to": None,
    "subject": None,
    "html": None,
    "text": None,
    "headers": None,
    "tags": None,
    "also_to": None,
    "cc": None,
    "bcc": None,
    "has_attachments": False,
    "batch_id": None,
}


def mail(**given: Any) -> Message:
    """A message; what is given is of the email or of the message, whichever has it."""
    of_message: dict[str, Any] = {
        "from_email": "Shop <noreply@example.com>",
        "reply_to": None,
        "subject": "Hello",
        "html": "<p>Hello</p>",
        "text": "Hello",
        "attachments": (),
    }
    of_message |= {name: given.pop(name) for name in list(given) if name in of_message}
    email = ClaimedEmail(**({"id": uuid4(), "lease_token": uuid4()} | _EMAIL | given))
    return Message(email, **of_message)


def batch(count: int, batch_id: UUID | None = None, **given: Any) -> list[Message]:
    """Messages that go in one call."""
    batch_id = batch_id or uuid4()
    return [
        mail(batch_id=batch_id, **{"recipient_email": f"user{n}@example.org"} | given)
        for n in range(count)
    ]
