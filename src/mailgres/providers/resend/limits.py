"""Reads the limits of Resend from headers and from the account's usage.

As documented, `ratelimit-limit` requests are allowed per window of one second; `ratelimit-reset` is
the rest of the window, not its length. `x-resend-daily-quota` is the number of emails of today;
accounts without a daily quota do not have it. The daily quota is for rolling 24 hours, the monthly
quota for the calendar month.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mailgres.model import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 1_000_000_000
_USAGE_RETRY = timedelta(hours=1)
_LONGEST_RESET = {
    "daily": timedelta(days=1, hours=1),
    "monthly": timedelta(days=32),
}


def limits_in(headers: Mapping[str, str], known: Limits | None) -> Limits | None:
    """Return the limits in the headers of an answer."""
    limit = _number(headers.get("ratelimit-limit"))
    sent = _number(headers.get("x-resend-daily-quota"))
    if not limit and sent is None:
        return known
    found = known or Limits()
    if limit:
        window = re.search(r";\s*w=(\d{1,6})\b", headers.get("ratelimit-policy", "")[:1000])
        seconds = int(window[1]) if window else 0
        found = replace(found, calls_per_second=limit / max(seconds, 1))
    return found if sent is None else replace(found, sent_today=sent)


def usage_limits(reported: Mapping[str, Any]) -> Limits:
    """Return the limits in an answer of `GET /usage`."""
    daily, monthly = _cap(reported, "daily"), _cap(reported, "monthly")
    rate = reported.get("rate_limit")
    rate = rate if isinstance(rate, dict) else {}
    duration = re.fullmatch(r"(\d{1,9})ms", str(rate.get("duration")))
    calls = _number(rate.get("limit"))
    seconds = int(duration[1]) / 1000 if duration else 1.0
    return Limits(
        calls_per_second=calls / seconds if calls and seconds else None,
        daily=_number(daily.get("limit")),
        monthly=_number(monthly.get("limit")),
        sent_today=_number(daily.get("used")),
    )


def usage_reset(reported: Mapping[str, Any], code: str, now: datetime) -> timedelta | None:
    """Return the time until the quota of a fault is reset, by an answer of `GET /usage`.

    None if the answer does not say. `now`: the time at Resend. A time in the past, or beyond the
    quota's period, is ignored.
    """
    span = _span(code)
    try:
        reset = datetime.fromisoformat(str(_cap(reported, span).get("resets_at")))
    except ValueError:
        return None
    reset = reset if reset.tzinfo else reset.replace(tzinfo=UTC)
    return reset - now if now < reset <= now + _LONGEST_RESET[span] else None


def next_reset(code: str, now: datetime) -> timedelta:
    """Return the wait before the next call if Resend does not say when the quota is reset.

    A rolling quota is freed gradually, at times that only Resend knows: one call every hour and at
    midnight is cheap and uses every day's quota.
    """
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if _span(code) == "monthly":
        return (day.replace(day=1) + timedelta(days=32)).replace(day=1) - now
    return min(day + timedelta(days=1) - now, _USAGE_RETRY)


def _span(code: str) -> str:
    return "monthly" if code.startswith("monthly") else "daily"


def _cap(reported: Mapping[str, Any], span: str) -> Mapping[str, Any]:
    emails = reported.get("emails")
    cap = emails.get(span) if isinstance(emails, dict) else None
    return cap if isinstance(cap, dict) else {}


def _number(value: object) -> int | None:
    """Return a count, if the text is one."""
    text = str(value)[:100].strip()
    return min(int(text), _MOST) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None
