"""The timeline of an email: a line for each event of its log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mailgres.cli.support.output import INFINITY, instant, moment
from mailgres.timeline import most_attempts, result_of, title_of
from mailgres.values.kinds import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

_MINUTE = 60
_AGES = 36500 * 86400
_LENGTH = Duration("0s", "36500d")
Line = tuple[str, str, str]


def timeline(found: dict[str, Any]) -> tuple[Line, list[Line]]:
    """Return the first line and the others: time, event, details."""
    email = found["email"]
    start = instant(email["created_at"])
    lines = [
        *((entry["at"], title_of(entry), _detail_text(entry)) for entry in found["log"]),
        *((entry["received_at"], *_reported(entry)) for entry in found.get("events", ())),
    ]
    lines.sort(key=lambda line: instant(line[0]))
    now = _now(email, instant(found["now"]))
    return (moment(email["created_at"]), "enqueued", _enqueued(email, start)), [
        *((moment(at), what, details) for at, what, details in lines),
        *([("now", email["status"], now)] if now else []),
    ]


def _enqueued(email: dict[str, Any], start: datetime) -> str:
    parts = [most_attempts(email)]
    if email["scheduled_for"]:
        parts.append(f"for {moment(email['scheduled_for'])}")
    if email["expires_at"]:
        parts.append(f"expires after {length(instant(email['expires_at']) - start)}")
    return ", ".join(parts)


def _reported(event: dict[str, Any]) -> tuple[str, str]:
    """Return what a provider reported, and its details."""
    detail = event["detail"]
    what = " ".join(filter(None, (event["kind"], event["event"])))
    late = instant(event["received_at"]) - instant(event["occurred_at"])
    parts = (
        event["reason"] if event["reason"] != "other" else None,
        detail.get("text"),
        f"by {event['provider']}" if event["provider"] else None,
        f"happened {length(late)} before" if late > timedelta(minutes=1) else None,
    )
    return f"provider: {what}", "; ".join(str(part) for part in parts if part)


def _detail_text(entry: dict[str, Any]) -> str:
    return "; ".join(_details(entry))


def _details(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the provider, the result, its reason and the next attempt."""
    yield from result_of(entry)
    if entry["next_retry_at"]:
        yield _next(entry["next_retry_at"], entry["at"])
    if entry["event"] == "sent" and entry["provider_message_id"]:
        yield f"id {entry['provider_message_id']}"
    yield f"worker {entry['worker']}" if entry["worker"] else f"by {entry['role']}"


def _next(due: str, at: str) -> str:
    wait = instant(due) - instant(at)
    if due == INFINITY:
        return "next never"
    return f"next in {length(wait)}" if wait > timedelta() else "next at once"


def _now(email: dict[str, Any], now: datetime) -> str:
    """Return what an email that is not settled waits for."""
    if email["status"] == "sending":
        return f"leased by {email['lease_worker']} until {moment(email['lease_until'])}"
    if email["status"] != "pending":
        return ""
    due = instant(email["next_retry_at"])
    if due <= now:
        return "due, waiting for a worker"
    if email["next_retry_at"] == INFINITY:
        return f"never due; `mailgres reschedule {email['id']} --to now` changes it"
    return f"next attempt at {moment(email['next_retry_at'])}, in {length(due - now)}"


def length(wait: timedelta) -> str:
    """Return a duration as text: 900ms, 1m, 2.5h."""
    seconds = max(wait.total_seconds(), 0)
    if seconds > _AGES:
        return "ages"
    if seconds < _MINUTE:
        return _LENGTH.show(timedelta(seconds=round(seconds, 1)))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + name
    return f"{seconds:.0f}s"
