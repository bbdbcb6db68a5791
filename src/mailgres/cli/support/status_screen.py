"""The screen of `mailgres status`: 80 columns, a part of the queue on each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.output import INFINITY, harmless, instant, moment
from mailgres.cli.support.output import status as coloured
from mailgres.cli.support.timeline import length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

WIDTH = 80
_MARGIN = 12
_BARS = "▁▂▃▄▅▆▇█"
_MOST = 6
"""Providers, workers and alerts that are shown one by one."""
_ALARMING = {"critical": "red", "warning": "yellow"}


def lines_of(found: dict[str, Any]) -> list[str]:
    """All lines of the screen."""
    now = instant(found["at"])
    parts = {
        "queue": _queue(found, now),
        "last hour": _throughput(found["throughput"], found["sent_in_60s"]),
        "providers": _providers(found["providers"], now),
        "workers": [*_workers(found["workers"], now), *_missing(found["missing"])],
        "alerts": _alerts(found["alerts"], now),
    }
    lines = [f"mailgres, {moment(found['at'])}"]
    for name, part in parts.items():
        for number, line in enumerate(part):
            lines.append(f"{name if not number else '':{_MARGIN}}{harmless(line)}".rstrip())
    return lines


def sparkline(values: Sequence[float]) -> str:
    """A row of bars; what is more than nothing is seen."""
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
    """How old the counts of open emails are; all other figures are as of now."""
    age = now - instant(found["counted_at"])
    return f"counted {length(age)} ago" if age.total_seconds() >= 1 else "counted now"


def _throughput(minutes: list[dict[str, Any]], lately: int) -> Iterator[str]:
    yield click.style(sparkline([one["sent"] for one in minutes]), fg="green")
    sums = {name: sum(one[name] for one in minutes) for name in ("sent", "retried", "dead")}
    tried = sum(sums.values())
    failed = sums["retried"] + sums["dead"]
    rate = f"{100 * failed / tried:.1f} % failed" if tried else "nothing was tried"
    yield (
        f"sent {sums['sent']:,} ({lately:,} in the last minute)  retried {sums['retried']:,}"
        f"  dead {sums['dead']:,}  {rate}"
    )


def _providers(providers: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    if not providers:
        yield "none: a worker brings its own when it starts"
    for one in providers[:_MOST]:
        quota = f", {one['quota_used']:g} % of its quota" if one["quota_used"] is not None else ""
        count = f"{one['sent_24h']:,} sent, {one['failed_24h']:,} failed in 24 h{quota}"
        yield f"{one['provider']:12} {_state(one, now)}  {count}"
    yield from _more(providers)


def _state(one: dict[str, Any], now: datetime) -> str:
    """Whether a provider can be used, and until when not."""
    if not one["enabled"]:
        return click.style("disabled", fg="yellow")
    if one["circuit"] != "closed":
        until = f" for {_until(one['circuit_until'], now)}" if one["circuit_until"] else ""
        return click.style(f"circuit {one['circuit'].replace('_', '-')}{until}", fg="red")
    if one["paused_until"]:
        return click.style(f"paused for {_until(one['paused_until'], now)}", fg="yellow")
    if one["limited_until"]:
        return click.style(f"waits {_until(one['limited_until'], now)}", fg="yellow")
    return click.style("open", fg="green")


def _until(text: str, now: datetime) -> str:
    if text == INFINITY:
        return "good"
    return length(instant(text) - now)


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
        yield click.style(f"{one['worker']} is silent for {ago}", fg="yellow")


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
        yield f"{severity} {one['rule']}{about}: {one['figure']:g} {one['unit']}, for {since}"
    yield from _more(alerts)


def _more(shown: Sequence[object]) -> Iterator[str]:
    if len(shown) > _MOST:
        yield f"… and {len(shown) - _MOST} more"
