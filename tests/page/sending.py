"""Emails for the tests of the page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from support.queue import Queue

ENQUEUE = """
    SELECT enqueue_email(NULL, %s, %s, %s, p_subject => %s, p_html => %s, p_text => %s,
        p_tenant_id => %s, p_scheduled_for => %s, p_attachments => %s)
"""
DIE = """
    UPDATE email_queue SET status = 'failed', dead_at = mailgres.now(), dead_reason = %s,
        error_code = %s, error_class = 'permanent', error_message = %s
    WHERE id = %s
"""


def enqueue(queue: Queue, to: str = "ana@example.com", **given: Any) -> UUID:
    """Enqueue an email with its own content."""
    values: dict[str, Any] = {
        "template": "welcome_user",
        "to": to,
        "payload": {},
        "subject": "Only for Ana",
        "html": "<p>Hello <b>Ana</b></p>",
        "text": "Hello Ana",
        "tenant": "default",
        "at": None,
        "files": None,
    } | given
    values["payload"] = Jsonb(values["payload"])
    values["files"] = Jsonb(values["files"]) if values["files"] else None
    found: UUID = queue.value(ENQUEUE, *values.values())
    return found


def kill(queue: Queue, queue_id: UUID, **given: str) -> None:
    """Let an email die."""
    values = {"reason": "permanent", "code": "invalid_to", "message": "no such mailbox"} | given
    queue.run(DIE, *values.values(), queue_id)
