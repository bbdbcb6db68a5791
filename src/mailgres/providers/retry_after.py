"""Reads `Retry-After`, which comes as seconds or as a date, and from anybody."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(days=1)
"""Nobody is believed who asks for more: a slip of theirs must not stop the mail for ever."""

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def retry_after(value: str | None, now: datetime, longest: timedelta = LONGEST) -> datetime | None:
    """When to come back; None if the header is missing or makes no sense. Never raises.

    A time that has passed is now: they said that we may come back.
    """
    wait = _wait(value.strip(), now) if isinstance(value, str) else None
    return None if wait is None else now + min(max(wait, timedelta(0)), longest)


def _wait(value: str, now: datetime) -> timedelta | None:
    if _SECONDS.fullmatch(value):
        return timedelta(seconds=float(value))
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:  # "-0000": the standard's way to say that UTC is meant
            date = date.replace(tzinfo=UTC)
        return date - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
