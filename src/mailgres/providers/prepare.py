"""Prepares an email for its call: an exception is a fault of this email alone.

No call was made for it, so it is not uncertain, and the rest of its batch is sent without it. Rows
are checked when they are written; this is a safety net for cases that the checks miss.
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
    """Return what a provider needs for a message, or the outcome if that fails."""
    try:
        return make(message)
    except Unsendable as fault:
        return fault.result
    except Exception as error:  # noqa: BLE001 - no email may harm the others of its batch
        return not_prepared(message.email, error)


def not_prepared(email: ClaimedEmail, error: Exception) -> Result:
    """Return the outcome of an email that our own code cannot prepare: it would fail again."""
    place = where(error)
    log.error(
        "an email cannot be prepared: %s", place, extra={"action": "send", "jobId": str(email.id)}
    )
    message = "the email could not be prepared: see the log"
    fault = Result("permanent", code="not_prepared", message=message, detail=place, called=False)
    # A retry may have more memory.
    return replace(fault, verdict="transient") if isinstance(error, MemoryError) else fault
