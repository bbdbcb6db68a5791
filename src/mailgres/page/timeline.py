"""What happened to an email, with its cause in words; why it died, and what to do."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from mailgres import runbook
from mailgres.page import words
from mailgres.providers.explain import explain
from mailgres.timeline import (
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
    from collections.abc import Iterator, Mapping

_CLASSES = {
    "transient": "A fault that passes.",
    "rate": "The provider asked for fewer emails a second.",
    "quota": "The provider's quota was used up.",
    "config": "The account or the sender is not set up at the provider.",
    "permanent": "The provider will never accept this email as it is.",
    "ambiguous": "No clear answer: the email may have been delivered.",
}
"""What a class of errors means, for codes that nobody explains."""
_EVER = datetime.max.replace(tzinfo=UTC)
_BULLET = re.compile(r"^- `(\w+)`: (.+(?:\n  .+)*)", re.MULTILINE)


def steps_of(found: Mapping[str, Any]) -> list[Step]:
    """Return the steps, oldest first, and what comes next."""
    email = found["email"]
    about = most_attempts(email)
    if email["scheduled_for"]:
        about += f", not before {words.clock(email['scheduled_for'])}"
    steps = [*map(_logged, found["log"]), *map(reported, found["events"])]
    steps.sort(key=lambda step: words.instant(step.at) or _EVER)
    first = Step(email["created_at"], "enqueued", PLAIN, about)
    return [first, *steps, *_next(found)]


def meaning_of(code: str | None, error_class: str | None) -> str:
    """Return what an error means, in words."""
    for each in explain(code) if code else ():
        return each.rule.meaning
    return _CLASSES.get(error_class or "", "")


def advice_for(found: Mapping[str, Any]) -> dict[str, str] | None:
    """Return why an email died and what to do; None if it did not."""
    email = found["email"]
    if email["status"] != "failed":
        return None
    code = email["error_code"]
    return {
        "reason": email["dead_reason"] or "",
        "what_to_do": _runbook().get(email["dead_reason"] or "", ""),
        "code": code or "",
        "meaning": meaning_of(code, email["error_class"]),
        "error": email["error_message"] or "",
    }


@cache
def _runbook() -> dict[str, str]:
    """Return what the runbook says about each reason."""
    section = runbook.sections().get("dead_letters", "")
    found = ((name, " ".join(text.split())) for name, text in _BULLET.findall(section))
    return {name: text[:1].upper() + text[1:] for name, text in found}


def _logged(entry: Mapping[str, Any]) -> Step:
    has_fault = entry["event"] in ("retry", "dead", "deferred")
    cause = meaning_of(entry["error_code"], entry["error_class"]) if has_fault else ""
    by = f"worker {entry['worker']}" if entry["worker"] else entry.get("role") or ""
    mood = mood_of(entry["event"])
    return Step(entry["at"], title_of(entry), mood, "; ".join(_details(entry)), cause, by)


def _details(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from result_of(entry)
    due, at = words.instant(entry["next_retry_at"]), words.instant(entry["at"])
    if due and at and due > at:
        yield f"next attempt in {words.length(due - at)}"
    if entry["event"] == "sent" and entry["provider_message_id"]:
        yield f"id {entry['provider_message_id']}"


def _next(found: Mapping[str, Any]) -> list[Step]:
    """Return what an email that is not settled waits for."""
    email, now = found["email"], words.instant(found["now"])
    if email["status"] == "sending":
        until = words.clock(email["lease_until"])
        return [Step("", "being sent", WAITING, f"leased by {email['lease_worker']} until {until}")]
    if email["status"] != "pending":
        return []
    due = words.instant(email["next_retry_at"])
    if due is None:
        return [Step("", "never due", WAITING, "reschedule it to give it a time")]
    if now and due <= now:
        return [Step("", "due now", WAITING, "it waits for a worker, its provider and its turn")]
    return [Step(email["next_retry_at"], "next attempt", WAITING)]
