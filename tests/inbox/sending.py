"""Emails on their way into the inbox: enqueued, then captured by a worker of the test's own."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from mailgres.settings import load
from mailgres.worker import open_worker
from support.queue import Queue

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def work(url: str) -> None:
    """Work off what is due with the provider `capture`."""
    flags = {"database_url": url, "providers": "capture", "profile": "development"}
    with open_worker(load({}, flags), janitors=False) as worker:
        worker.drain()


def file_of(content: bytes, filename: str = "a.txt", **more: Any) -> dict[str, Any]:
    """An attachment as `enqueue_email` takes it."""
    return {"filename": filename, "content": base64.b64encode(content).decode(), **more}


def enqueue(queue: Queue, *files: dict[str, Any], **fields: Any) -> UUID:
    """Enqueue an email with content of its own."""
    given = {"subject": "Hello", "text": "Hi Ana", "html": "<p>Hi Ana</p>", **fields}
    if files:
        given["attachments"] = Jsonb(list(files))
    recipient = given.pop("recipient", "ana@example.com")
    return queue.enqueue(given.pop("template", "custom"), recipient, **given)
