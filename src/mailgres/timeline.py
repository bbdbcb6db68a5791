"""What the timelines of an email say, in the commands, in the inbox and on the operator's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GOOD, BAD, WAITING, PLAIN = "good", "bad", "waiting", "plain"
EVENTS = {
    "retry": "failed, will be retried",
    "deferred": "deferred, no retry is spent",
    "failed": "reported as failed",
    "complained": "reported as spam",
    "given_back": "given back unsent",
    "lost": "lease lost",
    "reopened": "retried by hand",
    "copy_refused": "a copy was refused",
}
"""Texts for events whose names are not clear enough."""
_BAD = ("retry", "dead", "failed", "bounced", "complained", "lost", "copy_refused")
_MOODS = {"sent": GOOD, "delivered": GOOD, "deferred": WAITING, **dict.fromkeys(_BAD, BAD)}


@dataclass(frozen=True)
class Step:
    """A step in the life of an email: when, what, and why."""

    at: str
    title: str
    mood: str
    detail: str = ""
    cause: str = ""
    by: str = ""


def mood_of(event: str) -> str:
    """Return the colour of an event."""
    return _MOODS.get(event, PLAIN)


def most_attempts(email: Mapping[str, Any]) -> str:
    """Return how many attempts an email has at most."""
    most = email["max_retries"] + 1
    return f"at most {most} attempts" if most > 1 else "one attempt"


def title_of(entry: Mapping[str, Any], texts: Mapping[str, str] = EVENTS) -> str:
    """Return what an entry of the log is about, and the number of its attempt if one was made."""
    event = str(entry["event"])
    title = texts.get(event, event)
    made = entry["claimed_at"] and event not in ("given_back", "cancelled")
    return f"attempt {entry['attempt']}: {title}" if made else title


def result_of(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the provider and its time, the error, and why the email died."""
    if entry["claimed_at"] and entry["provider"]:
        took = entry["duration_ms"]
        yield entry["provider"] + (f" in {took} ms" if took is not None else "")
    if fault := " ".join(filter(None, (entry["error_class"], entry["error_code"]))):
        yield fault
    if entry["dead_reason"] and entry["dead_reason"] != entry["error_class"]:
        yield str(entry["dead_reason"])
    if entry["error_message"]:
        yield entry["error_message"]


def reported(event: Mapping[str, Any]) -> Step:
    """Return what a provider reported after it accepted the email."""
    name = str(event["event"])
    detail = event.get("detail") or {}
    about = filter(None, (event["kind"], event["reason"], detail.get("text")))
    by = f"reported by {event['provider']}" if event["provider"] else "reported"
    title = EVENTS.get(name, name)
    return Step(event["occurred_at"], title, mood_of(name), ", ".join(map(str, about)), by=by)
