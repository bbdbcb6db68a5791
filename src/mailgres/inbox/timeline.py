"""What happened to an email, for people: a title, a detail and a mood for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.timeline import (
    BAD,
    EVENTS,
    GOOD,
    PLAIN,
    WAITING,
    Step,
    mood_of,
    most_attempts,
    reported,
    result_of,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVENTS = EVENTS | {"sent": "captured", "dead": "failed for good"}
_STATUSES = {
    "pending": ("waits", WAITING),
    "sending": ("is being sent", WAITING),
    "sent": ("captured", GOOD),
    "failed": ("failed", BAD),
    "cancelled": ("cancelled", BAD),
    "deleted": ("captured", GOOD),
}


def state_of(status: str, *, bounced: bool = False) -> tuple[str, str]:
    """Return the label of a status, and its mood."""
    return ("bounced", BAD) if bounced else _STATUSES.get(status, (status, PLAIN))


def steps_of(found: Mapping[str, Any]) -> list[Step]:
    """Return the steps, oldest first."""
    email = found["email"]
    first = [Step(email["created_at"], "enqueued", PLAIN, most_attempts(email))] if email else []
    events = map(reported, found["events"])
    steps = first + sorted([*map(_logged, found["log"]), *events], key=lambda step: step.at)
    if email and email["status"] == "pending":
        due = email["next_retry_at"]
        steps.append(Step(due if due != "infinity" else "", "next attempt", WAITING))
    return steps


def _logged(entry: Mapping[str, Any]) -> Step:
    title, mood = title_of(entry, _EVENTS), mood_of(entry["event"])
    return Step(entry["at"], title, mood, "; ".join(result_of(entry)))
