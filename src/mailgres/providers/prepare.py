"""Preparing an email for its call: whatever that raises is the fault of this email alone.

No call was made for it, so nothing about it is uncertain, and the others of its batch go without
it. Rows are checked when they are written; this is for what nobody has thought of.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mailgres.model import Result
from mailgres.providers.header import Unsendable
from mailgres.safe_errors import where

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.model import ClaimedEmail, Message

log = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(make: Callable[[Message], T], message: Message) -> T | Result:
    """What a provider needs for a message; or, if it cannot be made, the outcome."""
    try:
        return make(message)
    except Unsendable as fault:
        return fault.result
    except Exception as error:  # noqa: BLE001 - no email may harm the others of its batch
        return not_prepared(message.email, error)


def not_prepared(email: ClaimedEmail, error: Exception) -> Result:
    """The outcome of an email with which our own code failed: it would fail again."""
    place = where(error)
    log.error(
        "an email cannot be prepared: %s", place, extra={"action": "send", "jobId": str(email.id)}
    )
    message = "the email could not be prepared: see the log"
    fault = Result("permanent", code="not_prepared", message=message, detail=place, called=False)
    # There may be more memory another time.
    return replace(fault, verdict="transient") if isinstance(error, MemoryError) else fault
