"""Plots as SVG, drawn on the server: bars of numbers over time. No script, no style, no library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, BASE = 960, 150, 130
"""The drawing's own units; the browser scales it."""
_STEPS = (1, 2, 5)
_HOURS = 6


@dataclass(frozen=True)
class Series:
    """A name of numbers, and the class that colours them."""

    key: str
    label: str


def number(count: float) -> str:
    """Return a number as people read it."""
    return f"{count:,.0f}"


def top_of(most: float) -> int:
    """Return a round number that is not below `most`."""
    power = 1
    while True:
        for step in _STEPS:
            if step * power >= most:
                return step * power
        power *= 10


def bars(rows: Sequence[Mapping[str, object]], series: Sequence[Series], title: str) -> str:
    """Draw stacked bars, one for each row; a row has `since` and the number of each series."""
    totals = [sum(_of(row, each) for each in series) for row in rows]
    top = top_of(max(totals, default=0) or 1)
    step = WIDTH / max(len(rows), 1)
    parts = [
        (
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}:'
            f' {_summary(rows, series)}" preserveAspectRatio="none">'
        ),
        f'<line class="grid" x1="0" x2="{WIDTH}" y1="0.5" y2="0.5"/>',
        f'<line class="grid" x1="0" x2="{WIDTH}" y1="{BASE / 2}" y2="{BASE / 2}"/>',
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{BASE}" y2="{BASE}"/>',
    ]
    for place, row in enumerate(rows):
        parts += _bar(row, series, place * step, step, top)
    return "".join([*parts, "</svg>"])


def top_label(rows: Sequence[Mapping[str, object]], series: Sequence[Series]) -> str:
    """Return the number at the top of the plot."""
    most = max((sum(_of(row, each) for each in series) for row in rows), default=0)
    return number(top_of(most or 1))


def hours(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return times for the axis below: every six hours."""
    if not rows:
        return []
    times = [datetime.fromisoformat(str(row["since"])) for row in rows]
    per = max(len(times) // (24 // _HOURS), 1)
    return [f"{at:%H:%M}" for at in times[::per]] + ["now"]


def _bar(
    row: Mapping[str, object], series: Sequence[Series], x: float, step: float, top: int
) -> list[str]:
    found, y = [], float(BASE)
    for each in series:
        height = _of(row, each) / top * BASE
        if height > 0:
            height = max(height, 1.5)
            y -= height
            found.append(
                f'<rect class="{each.key}" x="{x + step * 0.1:.1f}" y="{max(y, 0):.1f}"'
                f' width="{step * 0.8:.1f}" height="{height:.1f}"/>'
            )
    if found:
        texts = ", ".join(f"{number(_of(row, each))} {each.label}" for each in series)
        at = datetime.fromisoformat(str(row["since"]))
        found = ["<g><title>", f"{at:%H:%M} UTC: {texts}", "</title>", *found, "</g>"]
    return found


def _of(row: Mapping[str, object], series: Series) -> float:
    return float(str(row[series.key] or 0))


def _summary(rows: Sequence[Mapping[str, object]], series: Sequence[Series]) -> str:
    sums = (sum(_of(row, each) for row in rows) for each in series)
    return ", ".join(
        f"{number(total)} {each.label}" for total, each in zip(sums, series, strict=True)
    )
