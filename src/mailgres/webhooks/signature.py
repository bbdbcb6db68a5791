"""Signatures of Standard Webhooks, which Resend's (Svix) are: the only module for the library.

`standardwebhooks` is the reference implementation, has no dependencies, and is what Svix's own
library verifies with. `resend.Webhooks.verify` does the same for one secret and a decoded text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from standardwebhooks import Webhook, WebhookVerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIELDS = ("id", "timestamp", "signature")
LONGEST_ID = 255


class BadSignature(Exception):
    """The request is not from whom it claims to be, or not from now."""


def verify(
    body: bytes, headers: Mapping[str, str], secrets: Iterable[str], prefix: str = "webhook"
) -> str:
    """Return the id of a request that one of the secrets signed in the last or next 5 minutes.

    `prefix`: `webhook` for the names of the standard, `svix` for Svix's.
    """
    given = {f"webhook-{name}": headers.get(f"{prefix}-{name}", "") for name in FIELDS}
    if not all(given.values()) or len(given["webhook-id"]) > LONGEST_ID:
        raise BadSignature(f"a header is missing: {', '.join(f'{prefix}-{n}' for n in FIELDS)}")
    if not given["webhook-id"].isprintable():
        raise BadSignature("the id is not a text")
    why = "no secret is configured"
    for secret in secrets:
        try:
            Webhook(secret).verify(body, given, json_parse=False)
        except WebhookVerificationError as error:
            why = str(error)
        except ValueError:  # neither UTF-8, nor base64, nor a list of versions and signatures
            why = "the signature cannot be read"
        else:
            return given["webhook-id"]
    raise BadSignature(why)


def sign(
    body: bytes,
    secret: str,
    event_id: str,
    prefix: str = "webhook",
    at: datetime | None = None,
) -> dict[str, str]:
    """Return the headers of a signed request, for samples."""
    moment = at or datetime.now(UTC)
    return {
        f"{prefix}-id": event_id,
        f"{prefix}-timestamp": str(int(moment.timestamp())),
        f"{prefix}-signature": Webhook(secret).sign(event_id, moment, body.decode()),
    }
