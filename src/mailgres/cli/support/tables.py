"""Tables that fit the terminal: columns are wrapped at spaces or moved below their row.

No word is broken or cut. A single text that is too long for its column is put below its row, and
an ellipsis is in its place.

In a pipe a table has its natural width and every value is complete.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import click

from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Head = Sequence["str | Column"]
    Rows = list[list[str]]

NARROWEST = 40
_GAP = "  "
_BELOW = "    "
_ELLIPSIS = "…"
_READABLE = 24
_COLOUR = re.compile(r"(\x1b\[(?:3[0-7]|0)m)")
"""The escape codes that click.style puts around a text."""


class Cell(str):
    """A text with a shorter form for narrow tables; it is never wrapped."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, text: str, short: str) -> Self:
        """Return a cell with both forms."""
        made = super().__new__(cls, text)
        made.short = short
        return made


@dataclass(frozen=True)
class Column:
    """A column, and what may be done to it if the table is too wide."""

    head: str
    least: int = 0
    """It may be this narrow: longer words are put below their row; 0: it is as wide as they are."""
    spare: str | None = None
    """It is left out if all its texts are this one."""
    below: str = ""
    """If given, its texts may be put below their rows, in this form: `tenant {}`."""


@dataclass(frozen=True)
class _Plan:
    """The columns side by side with their widths, and the columns below the row."""

    widths: dict[int, int]
    below: tuple[int, ...] = ()


def terminal_width() -> int | None:
    """Return the width of the terminal; None if the output is not a terminal.

    The variable COLUMNS sets it, also for a pipe.
    """
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(shutil.get_terminal_size((80, 24)).columns, NARROWEST)
    return None


def harmless(text: str) -> str:
    """Return a text without control characters, except our own colours."""
    return "".join(
        part if _COLOUR.fullmatch(part) else printable(part) for part in _COLOUR.split(text)
    )


def table(head: Head, rows: Iterable[Sequence[str]], width: int | None = None) -> list[list[str]]:
    """Return the lines of the head and of each row; `width` is None for the natural width."""
    columns = [one if isinstance(one, Column) else Column(one) for one in head]
    cells: Rows = [[_clean(text) for text in row] for row in rows]
    plan = _plan(columns, cells, width)
    heads = _side_by_side([one.head for one in columns], plan)
    return [heads, *(_row_lines(row, columns, plan, width) for row in cells)]


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Return the lines of a text, broken at spaces only; lines after the first are indented."""
    if width is None or display_width(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    plain = click.unstyle(text)
    if plain.isascii():
        return len(plain)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in plain)
    return len(plain) + wide - sum(map(bool, map(unicodedata.combining, plain)))


def _clean(text: str) -> str:
    if isinstance(text, Cell):
        return Cell(harmless(text), harmless(text.short))
    return harmless(text)


def _plan(columns: Sequence[Column], cells: Rows, width: int | None) -> _Plan:
    """Choose the mildest way in which the table fits."""
    shown = list(range(len(columns)))
    natural = _widths(columns, cells, shown, display_width)
    if width is None or _total(natural) <= width:
        return _Plan(natural)
    for row in cells:
        row[:] = [one.short if isinstance(one, Cell) else one for one in row]
    natural = _widths(columns, cells, shown, display_width)
    if _total(natural) > width:
        shown = [n for n in shown if not _is_spare(columns[n], [row[n] for row in cells])]
    below: list[int] = []
    movable = [n for n in shown if columns[n].below]
    while True:
        natural = _widths(columns, cells, shown, display_width)
        for floor in (_words, _least) if not movable else (_words,):
            floors = {n: floor(columns[n], [row[n] for row in cells]) for n in shown}
            if _total(floors) <= width:
                return _Plan(_shrunk(natural, floors, width), tuple(sorted(below)))
        if len(shown) == 1:
            return _Plan(natural, tuple(sorted(below)))
        below.append(movable.pop() if movable else shown[-1])
        shown.remove(below[-1])


def _is_spare(column: Column, texts: list[str]) -> bool:
    return column.spare is not None and all(text == column.spare for text in texts)


def _widths(
    columns: Sequence[Column], cells: Rows, shown: list[int], measure: Callable[[str], int]
) -> dict[int, int]:
    return {
        n: max(measure(text) for text in (columns[n].head, *(row[n] for row in cells)))
        for n in shown
    }


def _words(column: Column, texts: list[str]) -> int:
    """Return the least width of a column whose texts are wrapped at spaces."""
    longest = max(display_width(word) for text in (column.head, *texts) for word in _words_of(text))
    if not column.below:
        return longest
    # Below the row is a better place for a long text than a narrow column.
    return max(longest, min(_READABLE, max(map(display_width, texts), default=0)))


def _words_of(text: str) -> list[str]:
    # what has a colour or is a time stays whole
    return text.split() or [""] if not _COLOUR.search(text) and not _is_time(text) else [text]


def _is_time(text: str) -> bool:
    return re.fullmatch(r"(\d{4}-)?\d\d-\d\d( \d\d:\d\d.*)?", text) is not None


def _least(column: Column, texts: list[str]) -> int:
    words = _words(column, texts)
    return min(words, max(column.least, display_width(column.head))) if column.least else words


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _shrunk(widths: dict[int, int], floors: dict[int, int], width: int) -> dict[int, int]:
    """Make the widest columns narrower, one step at a time, until the table fits."""
    widths = dict(widths)
    while _total(widths) > width:
        widest = max((n for n in widths if widths[n] > floors[n]), key=lambda n: widths[n])
        widths[widest] -= 1
    return widths


def _row_lines(
    row: Sequence[str], columns: Sequence[Column], plan: _Plan, width: int | None
) -> list[str]:
    long = [n for n, own in plan.widths.items() if columns[n].least and not _fits(row[n], own)]
    beside = [_ELLIPSIS if n in long else text for n, text in enumerate(row)]
    lines = _side_by_side(beside, plan)
    below = [
        (columns[n].below or f"{columns[n].head}: {{}}").replace("{}", row[n])
        for n in sorted((*long, *plan.below))
        if row[n] not in ("", "-", columns[n].spare)
    ]
    if below:
        lines += wrapped(_BELOW + "; ".join(below), width, _BELOW)
    return lines


def _fits(text: str, width: int) -> bool:
    return all(display_width(line) <= width for line in wrapped(text, width))


def _side_by_side(row: Sequence[str], plan: _Plan) -> list[str]:
    parts = [
        wrapped(row[n], width) if not _COLOUR.search(row[n]) else [row[n]]
        for n, width in plan.widths.items()
    ]
    height = max(map(len, parts))
    lines = []
    for at in range(height):
        texts = [part[at] if at < len(part) else "" for part in parts]
        padded = map(_padded, texts, plan.widths.values())
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))
