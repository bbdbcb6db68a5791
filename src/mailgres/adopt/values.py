"""Decide by its values what a column is whose name says nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mailgres.adopt.mapping import ASK, NO_PLACE
from mailgres.adopt.vocabulary import meaning

if TYPE_CHECKING:
    from mailgres.adopt.columns import Assigned, Place

_DOMAIN_PART: Final = re.compile(r"(?<=[^@\s,;<>])@[^@\s,;<>]+\.[^@\s,;<>]")
_MOST: Final = 0.8
_FEW: Final = 12
_WORDS: Final = 2
"""A column with values of two different meanings, one of them waiting, is a status."""


def decide(places: list[Place], found: Assigned) -> None:
    """Find the address and the status by their values; ask about times that lie ahead."""
    rest = [each for each in places if found.fields.get(each.source) == NO_PLACE]
    if found.source("recipient_email") is None:
        _only_one([each for each in rest if _holds_addresses(each)], "recipient_email", found)
    if found.source("status") is None:
        _only_one([each for each in rest if _holds_statuses(each)], "status", found)
    for each in rest:
        if found.fields[each.source] == NO_PLACE and _lies_ahead(each):
            found.set(each.source, ASK, 'asks: some of its times lie ahead; scheduled_for, or ""?')


def _only_one(places: list[Place], name: str, found: Assigned) -> None:
    if len(places) == 1:
        found.set(places[0].source, name, "guess: by its values")
        return
    for each in places:
        found.set(each.source, ASK, f"asks: its values look like {name}")


def _holds_addresses(each: Place) -> bool:
    given = [str(value) for value in each.values if value]
    if each.kind != "text" or not given:
        return False
    return sum(bool(_DOMAIN_PART.search(value)) for value in given) >= _MOST * len(given)


def _holds_statuses(each: Place) -> bool:
    words = {str(value) for value in each.values}
    if each.kind not in ("text", "enum") or each.array or len(words) > _FEW:
        return False
    meanings = {meaning(word) for word in words} - {None}
    return "waiting" in meanings and len(meanings) >= _WORDS


def _lies_ahead(each: Place) -> bool:
    if each.kind not in ("time", "local_time") or each.array:
        return False
    now = datetime.now(UTC)
    return any(_instant(value) > now for value in each.values)


def _instant(value: object) -> datetime:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:  # infinity, or before the year 1
        return datetime.max.replace(tzinfo=UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
