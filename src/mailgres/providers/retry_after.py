"""Reads `Retry-After`, which comes as seconds or as a date, and from anybody."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = timedelta(days=1)
"""Nobody is believed who asks for more: a slip of theirs must not stop the mail for ever."""

_LONGEST_VALUE = 100
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def retry_after(value: str | None, now: datetime, longest: timedelta = LONGEST) -> timedelta | None:
    """How long to wait; None if the header is missing or makes no sense. Never raises.

    `now`: by the clock that a date in it is of. A time that has passed is now: they said that we
    may come back.
    """
    wait = _wait(value[:_LONGEST_VALUE].strip(), now) if isinstance(value, str) else None
    return None if wait is None else min(max(wait, timedelta(0)), longest)


def server_time(headers: Mapping[str, str], ours: datetime) -> datetime:
    """What time it is where the answer came from; `ours` if it does not say.

    A date in an answer is of that clock, and ours may be wrong.
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
    # "-0000" is the standard's way to say that UTC is meant
    return date if date.tzinfo else date.replace(tzinfo=UTC)
