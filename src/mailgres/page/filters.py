"""The filter of emails: its fields are parameters of the address, so that a link keeps them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from mailgres.page.words import STATUSES
from mailgres.values.kinds import BadValue, Duration

if TYPE_CHECKING:
    from collections.abc import Mapping

REASONS = ("exhausted", "permanent", "expired", "uncertain", "crashed", "quota")
TEXTS = ("template", "tenant", "recipient", "code", "provider")
FIELDS = ("status", *TEXTS, "reason", "since", "until")
MOST_TEXT = 320
_AGE = Duration("1s", "36500d")


@dataclass(frozen=True)
class Filter:
    """Conditions on emails as they were entered; an empty field is no condition."""

    status: str = ""
    template: str = ""
    tenant: str = ""
    recipient: str = ""
    code: str = ""
    provider: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""
    since_at: datetime | None = None
    until_at: datetime | None = None

    def __bool__(self) -> bool:
        """Return whether there is any condition."""
        return any(getattr(self, name) for name in FIELDS)

    @property
    def query(self) -> str:
        """The parameters of the address."""
        given = {name: getattr(self, name) for name in FIELDS if getattr(self, name)}
        return urlencode(given)

    def as_json(self) -> dict[str, object]:
        """Return the filter of `find_emails`."""
        names = {"code": "error_code", "reason": "dead_reason"}
        fields = ("status", *TEXTS, "reason")
        found: dict[str, object] = {
            names.get(name, name): [getattr(self, name)] for name in fields if getattr(self, name)
        }
        times = {"since": self.since_at, "until": self.until_at}
        return found | {name: time.isoformat() for name, time in times.items() if time}

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the queries."""
        texts = {name: getattr(self, name) or None for name in (*TEXTS, "reason")}
        status = "failed" if self.reason and not self.status else self.status
        recipient = self.recipient.lower()
        return texts | {
            "status": [status] if status else None,
            "recipient": recipient or None,
            "suffix": recipient.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_"),
            "since": self.since_at,
            "until": self.until_at,
        }


class BadFilter(ValueError):
    """A field has a value that no email can have."""


def read(given: Mapping[str, str], now: datetime) -> Filter:
    """Read a filter; refuse values that nobody can mean."""
    texts: dict[str, Any] = {name: given.get(name, "").strip() for name in FIELDS}
    found = Filter(**texts)
    too_long = [name for name, text in texts.items() if len(text) > MOST_TEXT or "\0" in text]
    if too_long:
        raise BadFilter(f"The {too_long[0]} is not valid.")
    if found.status == "dead":
        found = replace(found, status="failed")
    if found.status and found.status not in STATUSES:
        raise BadFilter(f"There is no status {found.status}: use {', '.join(STATUSES)}.")
    if found.reason and found.reason not in REASONS:
        raise BadFilter(f"There is no reason {found.reason}: use {', '.join(REASONS)}.")
    if found.reason and found.status not in ("", "failed"):
        raise BadFilter("Only dead emails have a reason.")
    found = replace(found, since_at=_time(found.since, now), until_at=_time(found.until, now))
    if found.since_at and found.until_at and found.since_at >= found.until_at:
        raise BadFilter("The time window ends before it begins.")
    return found


def _time(text: str, now: datetime) -> datetime | None:
    """Read an age such as 24h, or a time; without a zone it is UTC."""
    if not text:
        return None
    try:
        return now - _AGE.parse(text)
    except (BadValue, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadFilter(f"{text} is not a time: use 24h, 7d or 2026-01-31T09:00.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
