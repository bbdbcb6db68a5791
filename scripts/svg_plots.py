"""Plots as SVG, without a library: horizontal bars and lines, for light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 760
LABEL_WIDTH = 230
VALUE_WIDTH = 90
BAR = 16
GAP = 8
GREY = "#808080"
COLOURS = (
    "#d1495b",
    "#2e7dd1",
    "#3a9d5d",
    "#e0a030",
    "#8a5fc0",
    "#2aa8a8",
    "#b06a3c",
    "#c05fa8",
    "#707b8c",
    "#a0a83a",
)


class Bar(NamedTuple):
    """One bar: its label, its value, and the index of its colour."""

    label: str
    value: float
    colour: int = 1


class Line(NamedTuple):
    """One line: its label, and its values, the first one at 1."""

    label: str
    values: Sequence[float]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{GREY}">{escape(text)}</text>\n'
    )


def _svg(height: float, title: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" role="img" font-family="sans-serif" font-size="12">\n'
        f"<title>{escape(title)}</title>\n{_text(0, 16, title, weight='bold')}{body}</svg>\n"
    )


def number(value: float) -> str:
    """Return a value as the plots and tables show it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"  # noqa: PLR2004


def bars(title: str, found: Sequence[Bar]) -> str:
    """Return horizontal bars, in the given order."""
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    most = max((bar.value for bar in found), default=0) or 1
    body = ""
    y = 30
    for bar in found:
        width = max(1.0, room * bar.value / most)
        colour = COLOURS[bar.colour % len(COLOURS)]
        body += _text(LABEL_WIDTH - 8, y + 12, bar.label, "end")
        place = f'x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR}"'
        body += f'<rect {place} fill="{colour}"/>\n'
        body += _text(LABEL_WIDTH + width + 6, y + 12, number(bar.value))
        y += BAR + GAP
    return _svg(y + 4, title, body)


def lines(title: str, unit: str, found: Sequence[Line]) -> str:
    """Return lines over rounds, with their names at the right."""
    height, top, left, right = 320, 40, 50, WIDTH - 150
    longest = max((len(line.values) for line in found), default=1)
    most = max((value for line in found for value in line.values), default=1) or 1
    body = _text(left, 32, unit)
    for tick in (0.0, 0.5, 1.0):
        y = height - tick * (height - top)
        body += (
            f'<line x1="{left}" y1="{y:.0f}" x2="{right}" y2="{y:.0f}" stroke="{GREY}"'
            ' stroke-opacity=".3"/>\n'
        )
        body += _text(left - 6, y + 4, number(round(most * tick, 2)), "end")
    step = (right - left) / max(1, longest - 1)
    for index in range(longest):
        body += _text(left + index * step, height + 18, str(index + 1), "middle")
    for place, line in enumerate(found):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(
            f"{left + index * step:.1f},{height - value / most * (height - top):.1f}"
            for index, value in enumerate(line.values)
        )
        body += f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>\n'
        y = top + 18 * place
        body += f'<rect x="{right + 14}" y="{y}" width="10" height="10" fill="{colour}"/>\n'
        body += _text(right + 30, y + 10, line.label)
    return _svg(height + 30, title, body)
