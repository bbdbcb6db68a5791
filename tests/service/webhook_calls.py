"""What the tests of webhooks share: secrets, and calls as providers make them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from svix.webhooks import Webhook

from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Answer, Site


def secret(word: str) -> str:
    """A signing secret; `s3cr3t` is looked for in every log."""
    return "whsec_" + base64.b64encode(f"s3cr3t {word} of the tests".encode()).decode()


RESEND, ACME, OWN, RELAY = (secret(word) for word in ("resend", "acme", "own", "relay"))
PATH = "/webhooks/resend"


def headers(
    body: bytes,
    key: str = RESEND,
    *,
    name: str | None = None,
    ago: int = 0,
    prefix: str = "svix",
) -> list[str]:
    """The headers of a call, signed by Svix's own library."""
    identity = name or f"msg_{uuid4().hex}"
    moment = datetime.now(UTC) - timedelta(seconds=ago)
    return [
        f"{prefix}-id: {identity}",
        f"{prefix}-timestamp: {int(moment.timestamp())}",
        f"{prefix}-signature: {Webhook(key).sign(identity, moment, body.decode())}",
    ]


def call(site: Site, payload: Any, path: str = PATH, **signed: Any) -> Answer:
    """Call a webhook with a signature."""
    body = json.dumps(payload).encode()
    return site.ask("POST", path, *headers(body, **signed), body=body)


def sent(
    harness: E2eHarness, site: Site, recipient: str = "ana@example.com", **options: Any
) -> samples.About:
    """Send an email through the service; what events say about it."""
    queue_id = harness.enqueue("welcome_user", recipient, **options)
    assert site.trigger().json["sent"] == 1
    email = harness.email(queue_id)
    moment = datetime.now(UTC).isoformat()
    return samples.About(email.provider_message_id, str(queue_id), recipient, moment)


def recorded(harness: E2eHarness, queue_id: str | UUID) -> list[Any]:
    """The events of an email."""
    query = "SELECT * FROM email_events WHERE queue_id = %s ORDER BY id"
    return harness.rows(query, queue_id)


def unmatched(harness: E2eHarness) -> list[Any]:
    """The events without an email."""
    return harness.rows("SELECT * FROM mailgres.unmatched_events ORDER BY id")
