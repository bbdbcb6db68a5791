"""Decide what each status means, how retries work, and what priorities stand for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mailgres.adopt.catalog import line_with
from mailgres.adopt.mapping import ASK
from mailgres.adopt.vocabulary import PRIORITIES, meaning, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mailgres.adopt.catalog import Catalog, Rows, Table

DEFAULT_LIMIT: Final = 3
MOST_URGENT, LEAST_URGENT = 1, 9
_LITERAL: Final = re.compile(r"'((?:[^']|'')*)'")
_NUMBER: Final = re.compile(r"\b(\d+)\b")


def normal(status: str) -> str:
    """Return a status in the form in which rows are compared: lower case, no space around.

    Only ASCII is changed, as SQL's lower() does in the collation C: the result must not depend on
    the locale of the database.
    """
    trimmed = status.strip(" \t\n\r")
    return "".join(one.lower() if one.isascii() else one for one in trimmed)


def found_values(table: Table, column: str, rows: Rows) -> dict[str, str]:
    """Return every status that the catalog or a row shows, each with where it was seen."""
    found: dict[str, str] = {}
    for value, where in (*_declared(table, column), *_counted(column, rows)):
        if value.strip():
            found.setdefault(value, where)
    return found


def _declared(table: Table, column: str) -> Iterator[tuple[str, str]]:
    about = table.column(column)
    yield from ((label, f"enum {about.type}") for label in about.labels)
    for each in table.constraints:
        if each.kind == "c" and each.columns == (column,):
            yield from ((value, each.definition) for value in _LITERAL.findall(each.definition))
    if about.default and (value := _LITERAL.match(about.default)):
        yield value[1], f"DEFAULT {about.default}"


def _counted(column: str, rows: Rows) -> Iterator[tuple[str, str]]:
    for given, number in rows.values.get(column, {}).items():
        if given is not None:
            yield given, f"{number:,} rows"
    yield from ((str(given), "rows") for given in rows.of(column))


def meanings(values: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what each status means, and a remark for each that is a guess or a question."""
    found: dict[str, str] = {}
    remarks: dict[str, str] = {}
    for value in values:
        key = normal(value)
        if key in found:
            continue
        found[key] = meaning(value) or ASK
        if found[key] == ASK:
            remarks[key] = "asks: what does it mean? unknown: its rows are listed and left"
        elif found[key] == "failed_retriable":
            remarks[key] = "guess: it is retried until the limit of attempts"
    return found, remarks


def of_boolean(column: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what true and false mean in a column such as `sent`."""
    return {"true": "sent", "false": "waiting"}, {"false": f"guess: not {column} yet"}


def retried_failures(
    statuses: dict[str, str], table: Table, column: str, catalog: Catalog
) -> dict[str, str]:
    """Return the failed statuses that the database's own code picks again, with that line."""
    sources = [*table.indexes, *(each.source for each in catalog.functions)]
    sources += [each.command for each in catalog.jobs]
    found = {}
    for status, what in statuses.items():
        if what != "failed_final":
            continue
        listed = rf"\b{column}\b\"?\W*(?:IN|= ANY).*'{re.escape(status)}'"
        for source in sources:
            line = line_with(source, listed)
            picks = line and any(f"'{s}'" in line for s, m in statuses.items() if m == "waiting")
            if line and picks and not re.search(r"\bCHECK\b", line, re.IGNORECASE):
                found[status] = line
                break
    return found


def limit(table: Table, column: str, rows: Rows, catalog: Catalog) -> tuple[int, str]:
    """Return how many failed attempts make an email dead, and what shows it."""
    pattern = rf"\b{re.escape(column)}\b\"?\s*(?:<|>=)\s*(\d+)"
    for source in (*table.indexes, *(each.code for each in catalog.functions)):
        if said := re.search(pattern, source, re.IGNORECASE):
            return int(said[1]), f"guess: {said[0]}"
    most = max((int(each) for each in rows.of(column)), default=0)
    return DEFAULT_LIMIT, f"guess: nothing in the database says it; the highest {column} is {most}"


def priorities(table: Table, column: str, rows: Rows) -> tuple[dict[str, int], str]:
    """Return our priority for each of theirs, and how it was found."""
    values = {str(each) for each in rows.of(column)} | set(table.column(column).labels)
    if table.column(column).kind != "number":
        return {normal(each): PRIORITIES.get(plain(each), 5) for each in sorted(values)}, (
            "guess: by their words"
        )
    numbers = {int(float(each)) for each in values}
    for each in table.constraints:
        if each.kind == "c" and each.columns == (column,):
            numbers |= {int(one) for one in _NUMBER.findall(each.definition)}
    if not numbers:
        return {}, "guess: no row has one"
    low, high = min(numbers), max(numbers)
    width = max(high - low, 1)
    scale = {
        str(n): MOST_URGENT + round((n - low) * (LEAST_URGENT - MOST_URGENT) / width)
        for n in sorted(range(low, high + 1) if width < LEAST_URGENT * 2 else numbers)
    }
    return scale, f"guess: {low} is the most urgent"
