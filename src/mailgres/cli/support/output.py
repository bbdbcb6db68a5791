"""How operators' commands write values: tables, times, rates."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mailgres.safe_errors import printable
from mailgres.values.kinds import BadValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mailgres.values.kinds import Kind

T = TypeVar("T")

INFINITY = "infinity"
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NEARLY = 1e-6
_COLOUR = re.compile(r"(\x1b\[(?:3[0-7]|0)m)")
"""What click.style puts around a text."""

COLOURS = {"pending": "cyan", "sending": "blue", "sent": "green", "failed": "red"}
"""Of statuses; click leaves colours out where output is no terminal."""


class Nothing:
    """What is to be taken away, unlike what was not mentioned."""


NONE = Nothing()


def reader(kind: Kind[Any]) -> Callable[[object], Any]:
    """Return what reads an argument of a command as a setting of that kind is read.

    What stands for none becomes NONE, because click takes None for not given.
    """

    def read(given: object) -> Any:  # noqa: ANN401 - what the kind gives
        try:
            found = kind.parse(given)
        except BadValue as why:
            raise click.BadParameter(f"{why}. Give {kind.allowed}.") from None
        return NONE if found is None else found

    return read


def when(given: str) -> datetime:
    """Read a time in ISO 8601; without a zone it is one of the user's own."""
    try:
        return datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{given!r} is not a time. Give one such as 2027-01-31T09:00."
        ) from None


def as_json(rows: object) -> None:
    """Print for programs; at a terminal, what would order it about is escaped."""
    text = json.dumps(rows, indent=2, ensure_ascii=False)
    click.echo(_escaped(text) if sys.stdout.isatty() else text)


def _escaped(text: str) -> str:
    """The same JSON without control characters, marks of direction and their like."""
    return "".join(one if one.isprintable() or one == "\n" else _escape(one) for one in text)


def _escape(one: str) -> str:
    # json leaves the last character of ASCII as it is, and it is a control character
    return json.dumps(one)[1:-1].replace("\x7f", "\\u007f")


def print_rows(
    rows: Sequence[T],
    head: Sequence[str],
    cells: Callable[[T], Sequence[str]],
    *,
    json_: bool,
    empty: str = "",
    limit: int | None = None,
    remarks: Callable[[T], Iterable[str]] = lambda _: (),
) -> None:
    """Print a list as a table or as JSON.

    `empty` is printed to standard error instead of a table without rows; `remarks` are lines below
    their row. A caller with a `limit` passes one row more if there is one.
    """
    shown = rows[:limit]
    if json_:
        as_json(shown)
    elif empty and not shown:
        click.echo(empty, err=True)
    else:
        first, *lines_ = table(head, map(cells, shown))
        click.echo(first)
        for line, row in zip(lines_, shown, strict=True):
            click.echo(line)
            for remark in remarks(row):
                click.echo(f"  {harmless(remark)}")
    if len(rows) > len(shown):
        click.echo(f"There are more than these {limit}: --limit shows more.", err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, aligned."""
    all_rows = [list(map(harmless, row)) for row in (head, *rows)]
    widths = [max(map(_width, column)) for column in zip(*all_rows, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in all_rows]


def harmless(text: str) -> str:
    """A text with no control characters but our own colours: some of it others have written."""
    return "".join(
        part if _COLOUR.fullmatch(part) else printable(part) for part in _COLOUR.split(text)
    )


def lines(text: str) -> str:
    """A text of several lines with no other control characters."""
    return printable(text.replace("\r\n", "\n"), keep="\n\t")


def _width(text: str) -> int:
    return len(click.unstyle(text))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def status(name: str) -> str:
    """The status of an email, in its colour."""
    return click.style(name, fg=COLOURS.get(name))


def instant(text: str) -> datetime:
    """A time of the database; one that Python's calendar does not reach is its first or last."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return FIRST if text.startswith("-") or text.endswith(" BC") else LAST


def moment(text: str | None) -> str:
    """A time of the database in the user's zone."""
    if text is None:
        return "-"
    if text.endswith(INFINITY):
        return "further notice" if text == INFINITY else "long ago"
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError):  # before the year 1 or after 9999, there or here
        return text


def rate(per_second: float) -> str:
    """A rate as one would write it: 2/s, 100/m."""
    for unit, seconds in _TIMES.items():
        count = per_second * seconds
        if count >= 1 and abs(count - round(count)) < _NEARLY * seconds:
            return f"{round(count)}/{unit}"
    return f"{per_second:.3g}/s"
