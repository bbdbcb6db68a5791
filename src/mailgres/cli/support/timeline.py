"""What happened to an email, in words: a line for each event of its log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mailgres.cli.support.output import INFINITY, instant, moment
from mailgres.values.kinds import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

EVENTS = {
    "retry": "failed, will be tried again",
    "deferred": "put off",
    "dead": "dead",
    "given_back": "given back unsent",
    "lost": "lost by its worker",
    "reopened": "retried by hand",
    "cancelled": "cancelled",
    "rescheduled": "rescheduled",
    "failed": "failed, said the provider",
    "copy_refused": "a copy was refused",
}
"""Events that need more words than their names."""

_MINUTE = 60
_AGES = 36500 * 86400
_LENGTH = Duration("0s", "36500d")
Line = tuple[str, str, str]


def timeline(found: dict[str, Any]) -> tuple[Line, list[Line]]:
    """The first line and all others: when, what, and what is known of it."""
    email = found["email"]
    start = instant(email["created_at"])
    lines = [(moment(entry["at"]), _what(entry), _detail_text(entry)) for entry in found["log"]]
    now = _now(email, instant(found["now"]))
    return (moment(email["created_at"]), "enqueued", _enqueued(email, start)), [
        *lines,
        *([("now", email["status"], now)] if now else []),
    ]


def _enqueued(email: dict[str, Any], start: datetime) -> str:
    parts = [f"at most {email['max_retries'] + 1} tries"]
    if email["scheduled_for"]:
        parts.append(f"for {moment(email['scheduled_for'])}")
    if email["expires_at"]:
        parts.append(f"expires after {length(instant(email['expires_at']) - start)}")
    return ", ".join(parts)


def _what(entry: dict[str, Any]) -> str:
    event = str(entry["event"])
    what = EVENTS.get(event, event)
    made = entry["claimed_at"] and event not in ("given_back", "cancelled")
    return f"try {entry['attempt']}: {what}" if made else what


def _detail_text(entry: dict[str, Any]) -> str:
    return "; ".join(_details(entry))


def _details(entry: dict[str, Any]) -> Iterator[str]:
    """Who, how it ended, why, and what comes next."""
    if entry["claimed_at"] and entry["provider"]:
        took = entry["duration_ms"]
        yield entry["provider"] + (f" in {took} ms" if took is not None else "")
    if fault := " ".join(filter(None, (entry["error_class"], entry["error_code"]))):
        yield fault
    if entry["dead_reason"] and entry["dead_reason"] != entry["error_class"]:
        yield str(entry["dead_reason"])
    if entry["error_message"]:
        yield entry["error_message"]
    if entry["next_retry_at"]:
        yield _next(entry["next_retry_at"], entry["at"])
    if entry["event"] in ("sent", "delivered") and entry["provider_message_id"]:
        yield f"id {entry['provider_message_id']}"
    yield f"worker {entry['worker']}" if entry["worker"] else f"by {entry['role']}"


def _next(due: str, at: str) -> str:
    wait = instant(due) - instant(at)
    if due == INFINITY:
        return "next never"
    return f"next in {length(wait)}" if wait > timedelta() else "next at once"


def _now(email: dict[str, Any], now: datetime) -> str:
    """What an email that is not settled waits for."""
    if email["status"] == "sending":
        return f"held by {email['lease_worker']} until {moment(email['lease_until'])}"
    if email["status"] != "pending":
        return ""
    due = instant(email["next_retry_at"])
    if due <= now:
        return "due, waits for a worker"
    if email["next_retry_at"] == INFINITY:
        return f"never due; `mailgres reschedule {email['id']} --to now` changes it"
    return f"next try at {moment(email['next_retry_at'])}, in {length(due - now)}"


def length(wait: timedelta) -> str:
    """A length of time as one would say it: 900ms, 1m, 2.5h."""
    seconds = max(wait.total_seconds(), 0)
    if seconds > _AGES:
        return "ages"
    if seconds < _MINUTE:
        return _LENGTH.show(timedelta(seconds=round(seconds, 1)))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + name
    return f"{seconds:.0f}s"
