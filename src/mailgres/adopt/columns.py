"""Decide which of our fields each column is, or each place in a column of JSON."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mailgres.adopt.mapping import ASK, LISTS, NO_PLACE, Source
from mailgres.adopt.vocabulary import FIELDS, KINDS, TIMES, place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mailgres.adopt.catalog import Rows, Table

DEPTH: Final = 3
_MOST: Final = 0.8
"""A few values of another kind are mistakes, to be listed later."""
_HTML_TAG: Final = re.compile(r"<[a-zA-Z!/][^<>]*>")
_BETWEEN_ADDRESSES: Final = re.compile(r"[,;]")
_ZONE: Final = re.compile(r"(?:AT TIME ZONE|timezone\() *'([^']+)'", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A column, or a place in JSON, with what is known about its values."""

    source: Source
    kind: str | None
    """None if no value was seen."""
    array: bool = False
    default: str | None = None
    values: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """Return the name that says what it is."""
        return self.source.path[-1] if self.source.path else self.source.column


@dataclass(slots=True)
class Assigned:
    """Which field each place is, and a remark on each decision that is a guess or a question."""

    fields: dict[Source, str] = field(default_factory=dict)
    remarks: dict[Source, str] = field(default_factory=dict)

    def source(self, name: str) -> Source | None:
        """Return the place of a field."""
        return next((each for each, to in self.fields.items() if to == name), None)

    def set(self, source: Source, name: str, remark: str) -> None:
        """Decide about a place, with a remark."""
        self.fields[source] = name
        self.remarks[source] = remark


def of_table(table: Table, rows: Rows) -> list[Place]:
    """Return the columns of a table."""
    return [
        Place(Source(each.name), each.kind, each.array, each.default, tuple(rows.of(each.name)))
        for each in table.columns
    ]


def in_json(column: str, rows: Rows) -> list[Place]:
    """Return the places in a column of JSON that the sampled rows have."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for each in rows.of(column):
        _collect(each, (), found)
    return [
        Place(Source(column, path), _kind(values), _is_list(values), None, tuple(values))
        for path, values in sorted(found.items())
    ]


def _collect(value: object, path: tuple[str, ...], found: dict[tuple[str, ...], list[Any]]) -> None:
    opaque = path and any(place(each, path[-1]) is not None for each in ("payload", "headers"))
    if isinstance(value, dict) and len(path) < DEPTH and not opaque:
        for key, inner in value.items():
            _collect(inner, (*path, key), found)
    elif path:
        found.setdefault(path, [])
        if value is not None:
            found[path].append(value)


def _kind(values: list[Any]) -> str | None:
    """Return the kind of values in JSON."""
    if not values:
        return None
    kinds = Counter(_kind_of(one) for value in values for one in _elements(value))
    ((kind, number),) = kinds.most_common(1) or (("text", 0),)
    return kind if number >= _MOST * kinds.total() else "text"


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict):
        return "json"
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return "text"
    return "local_time" if at.tzinfo is None else "time"


def _elements(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else (value,)


def _is_list(values: list[Any]) -> bool:
    return any(isinstance(each, list) for each in values)


def assign(places: list[Place], key: str | None) -> Assigned:
    """Give every place a field, the most telling names first. `key` is the primary key."""
    found = Assigned()
    options = sorted(
        (rank, name, index)
        for index, each in enumerate(places)
        for name in FIELDS
        if name != "id" and each.source != Source(key or "")
        if (rank := place(name, each.name)) is not None and _fits(each, name)
    )
    taken: set[str] = set()
    if key is not None:
        found.fields[Source(key)] = "id"
        taken.add("id")
    for _, name, index in options:
        source = places[index].source
        if name not in taken and source not in found.fields:
            found.fields[source] = name
            taken.add(name)
            if places[index].name != name:
                seen = "" if places[index].kind else ", no value seen"
                found.remarks[source] = f"guess: by its name{seen}"
    for each in places:
        if each.source not in found.fields:
            found.set(each.source, NO_PLACE, "no place for it: it stays in the old table")
    found.fields = {each.source: found.fields[each.source] for each in places}
    _decide_body(places, found)
    return found


def _fits(each: Place, name: str) -> bool:
    if each.array and name not in LISTS:
        return False
    return each.kind is None or each.kind in KINDS.get(name, (each.kind,))


def _decide_body(places: list[Place], found: Assigned) -> None:
    """Decide whether a body is HTML or text: by the columns beside it, else by its values."""
    source = found.source("body")
    if source is None:
        return
    html, text = found.source("html"), found.source("text")
    if html and text:
        found.set(source, ASK, f"asks: {html} and {text} are there, too")
    elif html or text:
        found.set(source, "text" if html else "html", f"guess: because there is {html or text}")
    else:
        values = next(each.values for each in places if each.source == source)
        tagged = [bool(_HTML_TAG.search(str(each))) for each in values if each]
        if tagged and all(tagged):
            found.set(source, "html", "guess: every row seen has tags")
        elif tagged and not any(tagged):
            found.set(source, "text", "guess: no row seen has a tag")
        else:
            found.set(source, "body", "guess: HTML if it has a tag, else text; decided per row")


def lists(places: list[Place], found: Assigned) -> tuple[str, ...]:
    """Return the fields that hold several addresses."""
    by_source = {each.source: each for each in places}
    several = []
    for name in LISTS:
        source = found.source(name)
        if source is None:
            continue
        each = by_source[source]
        if (
            each.array
            or name != "recipient_email"
            or any(_has_several(str(value)) for value in each.values)
        ):
            several.append(name)
    return tuple(several)


def _has_several(text: str) -> bool:
    return sum("@" in part for part in _BETWEEN_ADDRESSES.split(text)) > 1


def timezone(places: list[Place], found: Assigned, server: str) -> tuple[str | None, str]:
    """Return the zone of times without one, and how it was found, or a question."""
    local = [
        each
        for each in places
        if each.kind == "local_time" and found.fields.get(each.source) in (*TIMES, ASK)
    ]
    if not local:
        return None, ""
    for each in local:
        if zone := _ZONE.search(each.default or ""):
            return zone[1], f"guess: the default of {each.source} is {each.default}"
    names = ", ".join(str(each.source) for each in local)
    return ASK, f"asks: {names} have no time zone; this server's is {server}"
