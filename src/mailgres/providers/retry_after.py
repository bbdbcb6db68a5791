"""Reads `Retry-After`, which is seconds or a date, and may be wrong."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = timedelta(days=1)
"""Longer waits are cut: a mistake of a provider must not stop emails for weeks."""

_LONGEST_VALUE = 100
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def retry_after(value: str | None, now: datetime, longest: timedelta = LONGEST) -> timedelta | None:
    """Return the time to wait; None if the header is missing or invalid. Never raises.

    `now`: the time on the clock of a date in the header. A time in the past means now.
    """
    wait = _wait(value[:_LONGEST_VALUE].strip(), now) if isinstance(value, str) else None
    return None if wait is None else min(max(wait, timedelta(0)), longest)


def server_time(headers: Mapping[str, str], ours: datetime) -> datetime:
    """Return the time on the server's clock, or `ours` if the answer has no date.

    Dates in an answer refer to that clock, and ours may be wrong.
    """
    try:
        return _date(headers.get("date", ""))
    except (ValueError, TypeError, IndexError, OverflowError):
        return ours


def _wait(value: str, now: datetime) -> timedelta | None:
    if _SECONDS.fullmatch(value):
        return timedelta(seconds=float(value))
    try:
        return _date(value) - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _date(value: str) -> datetime:
    date = parsedate_to_datetime(value)
    # "-0000" means UTC in RFC 5322
    return date if date.tzinfo else date.replace(tzinfo=UTC)
