"""What happened to an email, for people: a title, a detail and a mood for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

GOOD, BAD, WAITING, PLAIN = "good", "bad", "waiting", "plain"
_EVENTS = {
    "sent": ("captured", GOOD),
    "delivered": ("delivered", GOOD),
    "retry": ("failed, will be retried", BAD),
    "deferred": ("deferred, no retry is spent", WAITING),
    "dead": ("failed for good", BAD),
    "failed": ("reported as failed", BAD),
    "bounced": ("bounced", BAD),
    "complained": ("reported as spam", BAD),
    "given_back": ("given back unsent", PLAIN),
    "lost": ("its worker was lost", BAD),
    "reopened": ("retried by hand", PLAIN),
    "cancelled": ("cancelled", BAD),
    "rescheduled": ("rescheduled", PLAIN),
    "copy_refused": ("a copy was refused", BAD),
}
_STATUSES = {
    "pending": ("waits", WAITING),
    "sending": ("is being sent", WAITING),
    "sent": ("captured", GOOD),
    "failed": ("failed", BAD),
    "cancelled": ("cancelled", BAD),
    "deleted": ("captured", GOOD),
}


@dataclass(frozen=True)
class Step:
    """A step in the life of an email."""

    at: str
    title: str
    mood: str
    detail: str = ""


def mood_of(status: str, *, bounced: bool = False) -> tuple[str, str]:
    """Return the label of a status, and its mood."""
    return ("bounced", BAD) if bounced else _STATUSES.get(status, (status, PLAIN))


def steps_of(found: Mapping[str, Any]) -> list[Step]:
    """Return the steps, oldest first."""
    email = found["email"]
    first = [Step(email["created_at"], "enqueued", PLAIN, _enqueued(email))] if email else []
    reported = [_reported(event) for event in found["events"]]
    steps = first + sorted([*map(_step, found["log"]), *reported], key=lambda step: step.at)
    if email and email["status"] == "pending":
        due = email["next_retry_at"]
        steps.append(Step(due if due != "infinity" else "", "next attempt", WAITING))
    return steps


def _enqueued(email: Mapping[str, Any]) -> str:
    most = email["max_retries"] + 1
    return f"at most {most} attempts" if most > 1 else "one attempt"


def _reported(event: Mapping[str, Any]) -> Step:
    """Return what the provider reported later."""
    title, mood = _EVENTS.get(event["event"], (str(event["event"]), PLAIN))
    about = filter(None, (event["kind"], event["reason"], event["detail"].get("text")))
    return Step(event["occurred_at"], title, mood, ", ".join(map(str, about)))


def _step(entry: Mapping[str, Any]) -> Step:
    title, mood = _EVENTS.get(entry["event"], (str(entry["event"]), PLAIN))
    if entry["claimed_at"] and entry["event"] not in ("given_back", "cancelled"):
        title = f"attempt {entry['attempt']}: {title}"
    took = f"{entry['duration_ms']} ms" if entry["duration_ms"] is not None else ""
    fault = " ".join(filter(None, (entry["error_class"], entry["error_code"])))
    detail = ", ".join(filter(None, (took, fault)))
    message = entry["error_message"] or ""
    return Step(entry["at"], title, mood, ": ".join(filter(None, (detail, message))))
