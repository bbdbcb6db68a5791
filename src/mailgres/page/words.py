"""Times, lengths and states as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mailgres.timeline import BAD, GOOD, PLAIN, WAITING

__all__ = [
    "BAD",
    "GOOD",
    "PLAIN",
    "STATUSES",
    "WAITING",
    "age",
    "clock",
    "instant",
    "length",
]

STATUSES = {
    "pending": ("waiting", WAITING),
    "sending": ("being sent", WAITING),
    "sent": ("sent", GOOD),
    "failed": ("dead", BAD),
    "cancelled": ("cancelled", PLAIN),
}
"""A word for each status, and its colour."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_SECOND, _AGES = 1.0, 36500 * 86400.0


def instant(text: str | None) -> datetime | None:
    """Return a time of the database; None for none and for infinite ones."""
    if not text or "infinity" in text:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def length(wait: timedelta | float) -> str:
    """Return a duration: `850 ms`, `12 s`, `3 min`, `2.5 h`, `4 d`."""
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    seconds = max(seconds, 0.0)
    if seconds < _SECOND:
        return f"{seconds * 1000:.0f} ms"
    if seconds > _AGES:
        return "ages"
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:.0f} s"


def clock(text: str | None) -> str:
    """Return a time for reading without a script: UTC."""
    found = instant(text)
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if found else "never"


def age(text: str | None, now: datetime) -> str:
    """Return how long ago something was."""
    found = instant(text)
    return length(now - found) if found else ""
