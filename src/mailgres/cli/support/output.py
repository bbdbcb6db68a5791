"""The output of operators' commands: tables, JSON, times, rates."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mailgres.cli.support.tables import Cell, harmless, table, terminal_width, wrapped
from mailgres.safe_errors import printable
from mailgres.values.kinds import BadValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mailgres.cli.support.tables import Head
    from mailgres.values.kinds import Kind

T = TypeVar("T")

INFINITY = "infinity"
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NEARLY = 1e-6

COLOURS = {"pending": "cyan", "sending": "blue", "sent": "green", "failed": "red"}
"""The colours of statuses; click removes them if the output is not a terminal."""


class Nothing:
    """A value that removes a setting, unlike None, which leaves it as it is."""


NONE = Nothing()


def reader(kind: Kind[Any]) -> Callable[[object], Any]:
    """Return a function that parses an argument like a setting of this kind.

    The word for none becomes NONE, because None means that the option was not given.
    """

    def read(given: object) -> Any:  # noqa: ANN401 - what the kind gives
        try:
            found = kind.parse(given)
        except BadValue as why:
            raise click.BadParameter(f"{why}. Give {kind.allowed}.") from None
        return NONE if found is None else found

    return read


def when(given: str, expected: str = "a time such as 2027-01-31T09:00") -> datetime:
    """Read a time in ISO 8601; without a zone it is in the user's time zone."""
    try:
        return datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{given!r} is not a time. Give {expected}.") from None


@contextmanager
def progress_bar(total: int, done: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar.

    It is shown only at a terminal, and only if there is something to do.
    """
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=total, label=f"{done} of {total:,}", file=sys.stderr) as bar:
        yield bar.update


def as_json(rows: object) -> None:
    """Print JSON; at a terminal, control characters are escaped."""
    text = json.dumps(rows, indent=2, ensure_ascii=False)
    click.echo(_escaped(text) if sys.stdout.isatty() else text)


def _escaped(text: str) -> str:
    """Return the same JSON with unprintable characters escaped."""
    return "".join(one if one.isprintable() or one == "\n" else _escape(one) for one in text)


def _escape(one: str) -> str:
    # json does not escape U+007F, which is a control character
    return json.dumps(one)[1:-1].replace("\x7f", "\\u007f")


def print_rows(
    rows: Sequence[T],
    head: Head,
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
        width = terminal_width()
        first, *blocks = table(head, map(cells, shown), width)
        echo_lines(first)
        for block, row in zip(blocks, shown, strict=True):
            echo_lines(block)
            for remark in remarks(row):
                echo_lines(wrapped(f"  {harmless(remark)}", width, "    "))
    if len(rows) > len(shown):
        click.echo(f"There are more than these {limit}: --limit shows more.", err=True)


def print_table(head: Head, rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print a table that fits the terminal."""
    width = terminal_width()
    for block in table(head, rows, width and width - len(indent)):
        echo_lines([f"{indent}{line}" for line in block if line])


def echo_lines(texts: Iterable[str], *, err: bool = False) -> None:
    """Print lines."""
    for text in texts:
        click.echo(text, err=err)


def lines(text: str) -> str:
    """Return a text of several lines without other control characters."""
    return printable(text.replace("\r\n", "\n"), keep="\n\t")


def status(name: str) -> str:
    """Return the status of an email in its colour."""
    return click.style(name, fg=COLOURS.get(name))


def instant(text: str) -> datetime:
    """Parse a time of the database; times that Python cannot represent become its first or last."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return FIRST if text.startswith("-") or text.endswith(" BC") else LAST


def moment(text: str | None) -> str:
    """Return a time of the database in the user's time zone."""
    if text is None:
        return "-"
    if text.endswith(INFINITY):
        return "further notice" if text == INFINITY else "long ago"
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError):  # before the year 1 or after 9999, there or here
        return text


def time_cell(text: str | None) -> Cell:
    """Return a time for a table: without seconds, zone and this year if there is little room."""
    full = moment(text)
    try:
        at = datetime.fromisoformat(text or "").astimezone()
    except (ValueError, OverflowError):
        return Cell(full, full)
    this_year = at.year == datetime.now(at.tzinfo).year
    return Cell(full, f"{at:%m-%d %H:%M}" if this_year else f"{at:%Y-%m-%d}")


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, or more, in the singular or the plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def figure(value: float, unit: str) -> str:
    """Return the figure of an alert with its unit: 1 email, 2 emails, 80 %."""
    return f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"


def rate(per_second: float) -> str:
    """Return a rate as text: 2/s, 100/m."""
    for unit, seconds in _TIMES.items():
        count = per_second * seconds
        if count >= 1 and abs(count - round(count)) < _NEARLY * seconds:
            return f"{round(count)}/{unit}"
    return f"{per_second:.3g}/s"
