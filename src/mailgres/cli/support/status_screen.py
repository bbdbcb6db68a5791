"""The screen of `mailgres status`, 80 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.output import INFINITY, figure, instant, moment
from mailgres.cli.support.output import status as coloured
from mailgres.cli.support.tables import harmless, terminal_width, wrapped
from mailgres.cli.support.timeline import length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

WIDTH = 80
_MARGIN = 12
_BARS = "▁▂▃▄▅▆▇█"
_MOST = 6
"""How many providers, workers and alerts are shown."""
_ALARMING = {"critical": "red", "warning": "yellow"}


def lines_of(found: dict[str, Any]) -> list[str]:
    """Return the lines of the screen."""
    now = instant(found["at"])
    parts = {
        "queue": _queue(found, now),
        "last hour": _throughput(found["throughput"], found["sent_in_60s"]),
        "events": _events(found["events"]),
        "providers": _providers(found["providers"], now),
        "workers": [*_workers(found["workers"], now), *_missing(found["missing"])],
        "alerts": _alerts(found["alerts"], now),
    }
    width = terminal_width()
    lines = [f"mailgres, {moment(found['at'])}"]
    for name, part in parts.items():
        for number, line in enumerate(part):
            text = f"{name if not number else '':{_MARGIN}}{harmless(line)}".rstrip()
            lines += wrapped(text, width, " " * _MARGIN)
    return lines


def sparkline(values: Sequence[float]) -> str:
    """Return a row of bars; every value above 0 is visible."""
    most = max(values, default=0)
    if not most:
        return _BARS[0] * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[max(round(value / most * top), 1 if value else 0)] for value in values)


def _queue(found: dict[str, Any], now: datetime) -> Iterator[str]:
    states = [
        f"{coloured(one['status'])} {one['emails']:,}{'+' if one['at_least'] else ''}"
        for one in found["states"]
    ]
    yield "  ".join(states)
    due, oldest = found["due"]["emails"], found["due"]["oldest"]
    if due:
        waits = length(now - instant(oldest)) if oldest else "0s"
        yield f"{due:,} due now, the oldest for {waits}; {_age(found, now)}"
    else:
        yield f"nothing is due; {_age(found, now)}"


def _age(found: dict[str, Any], now: datetime) -> str:
    """Return the age of the depth; all other figures are current."""
    age = now - instant(found["counted_at"])
    return f"counted {length(age)} ago" if age.total_seconds() >= 1 else "counted now"


def _throughput(minutes: list[dict[str, Any]], lately: int) -> Iterator[str]:
    yield click.style(sparkline([one["sent"] for one in minutes]), fg="green")
    sums = {name: sum(one[name] for one in minutes) for name in ("sent", "retried", "dead")}
    tried = sum(sums.values())
    failed = sums["retried"] + sums["dead"]
    rate = f"{100 * failed / tried:.1f} % failed" if tried else "no attempts"
    yield (
        f"sent {sums['sent']:,} ({lately:,} in the last minute)  retried {sums['retried']:,}"
        f"  dead {sums['dead']:,}  {rate}"
    )


def _events(events: dict[str, int]) -> Iterator[str]:
    """Yield what providers reported about the emails of a day, if they did."""
    if any(events.values()):
        unmatched = f"  unmatched {events['unmatched']:,}" if events["unmatched"] else ""
        yield (
            f"24 h: delivered {events['delivered']:,}  bounced {events['bounced']:,}"
            f"  complained {events['complained']:,}{unmatched}"
        )


def _providers(providers: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    if not providers:
        yield "none: a worker registers its providers when it starts"
    for one in providers[:_MOST]:
        quota = f", {one['quota_used']:g} % of quota" if one["quota_used"] is not None else ""
        count = f"{one['sent_24h']:,} sent, {one['failed_24h']:,} failed in 24 h{quota}"
        yield f"{one['provider']:12} {_state(one, now)}  {count}"
    yield from _more(providers)


def _state(one: dict[str, Any], now: datetime) -> str:
    """Return whether a provider is usable, or for how long it is not."""
    if not one["enabled"]:
        return click.style("disabled", fg="yellow")
    if one["circuit"] != "closed":
        state = one["circuit"].replace("_", "-")
        return click.style(f"{state} circuit{_for(one['circuit_until'], now)}", fg="red")
    if one["paused_until"]:
        return click.style(f"paused{_for(one['paused_until'], now)}", fg="yellow")
    if one["limited_until"]:
        what = "rate-limited" if one["limited_by"] == "rate" else "out of quota"
        return click.style(f"{what}{_for(one['limited_until'], now)}", fg="yellow")
    return click.style("usable", fg="green")


def _for(until: str | None, now: datetime) -> str:
    return "" if until in (None, INFINITY) else f" for {length(instant(until) - now)}"


def _workers(workers: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    alive = [one for one in workers if one["alive"]]
    silent = [one for one in workers if not one["alive"]]
    yield f"{len(alive)} alive" if alive else click.style("none alive", fg="red")
    for one in alive[:_MOST]:
        runs = length(now - instant(one["started_at"]))
        yield f"{one['worker']}, {one['version']}, for {runs}"
    yield from _more(alive)
    for one in silent[:2]:
        ago = length(now - instant(one["seen_at"]))
        yield click.style(f"{one['worker']} was last seen {ago} ago", fg="yellow")


def _missing(missing: list[dict[str, Any]]) -> Iterator[str]:
    for one in missing[:_MOST]:
        said = f"no live worker has {one['provider']}: route {', '.join(one['routes'])}"
        yield click.style(said[: WIDTH - _MARGIN], fg="red")


def _alerts(alerts: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    if not alerts:
        yield click.style("none", fg="green")
    for one in alerts[:_MOST]:
        about = f" ({one['subject']})" if one["subject"] else ""
        since = length(now - instant(one["since"]))
        severity = click.style(one["severity"], fg=_ALARMING.get(one["severity"]))
        yield f"{severity} {one['rule']}{about}: {figure(one['figure'], one['unit'])}, for {since}"
    yield from _more(alerts)


def _more(shown: Sequence[object]) -> Iterator[str]:
    if len(shown) > _MOST:
        yield f"… and {len(shown) - _MOST} more"
