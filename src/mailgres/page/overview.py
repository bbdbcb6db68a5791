"""The state of the queue at a glance. One query answers all browsers: see `Overview`."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mailgres.page import plots, words
from mailgres.page.users import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.page.store import PageStore

FRESH_SECONDS = 2.0
"""Seconds for which figures are shown to everybody before the database is asked again."""
SENT = (plots.Series("sent", "sent"),)
FAILED = (
    plots.Series("dead", "dead"),
    plots.Series("retried", "failed and retried"),
    plots.Series("deferred", "deferred"),
)


class Overview:
    """The figures of the queue, asked at most every two seconds however many browsers are open."""

    def __init__(self, store: PageStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._figures: dict[str, Any] = {}

    def figures(self) -> dict[str, Any]:
        """Return the figures. All requests wait for the same answer."""
        with self._lock:
            if self._clock() - self._asked_at >= FRESH_SECONDS:
                (row,) = self._store.read(Role.VIEWER, "overview")
                self._figures, self._asked_at = row["overview"], self._clock()
            return self._figures


def view_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the page of the queue shows."""
    now = words.instant(found["at"]) or datetime.now(UTC)
    states = {each["status"]: each for each in found["states"]}
    day = found["day"] or []
    sent, failed = (sum(row[key] for row in day) for key in ("sent", "dead"))
    return {
        "at": found["at"],
        "counted_at": min(each["as_of"] for each in found["states"]),
        "cards": _cards(found, states, now),
        "sent_24h": plots.number(sent),
        "dead_24h": plots.number(failed),
        "sent_plot": plots.bars(day, SENT, "Sent in the last 24 hours"),
        "sent_top": plots.top_label(day, SENT),
        "failed_plot": plots.bars(day, FAILED, "Failed in the last 24 hours"),
        "failed_top": plots.top_label(day, FAILED),
        "hours": plots.hours(day),
        "alerts": [alert_of(each, now) for each in found["alerts"]],
        "providers": [_provider(each, now) for each in found["providers"]],
        "routes": [_route(each, now) for each in found["routes"]],
        "tenants": [_tenant(each, now) for each in found["tenants"]],
        "workers": [_worker(each, now) for each in found["workers"]],
    }


def _cards(
    found: dict[str, Any], states: dict[str, dict[str, Any]], now: datetime
) -> list[dict[str, str]]:
    due, minute = found["due"], found["minute"] or {}
    waits = words.age(due["oldest"], now)
    return [
        {
            "label": "Due now",
            "value": plots.number(due["emails"]),
            "about": f"oldest due for {waits}" if waits else "nothing waits",
            "mood": "",
            "query": "?status=pending",
        },
        {
            "label": "Waiting",
            "value": _count(states["pending"]),
            "about": f"{plots.number(due['parked'])} on hold"
            if due["parked"]
            else "with all later ones",
            "mood": "",
            "query": "?status=pending",
        },
        {
            "label": "Being sent",
            "value": _count(states["sending"]),
            "about": f"{plots.number(minute.get('sent') or 0)} sent in the last full minute",
            "mood": "",
            "query": "?status=sending",
        },
        {
            "label": "Dead",
            "value": _count(states["failed"]),
            "about": "kept for people",
            "mood": "bad" if states["failed"]["emails"] else "",
            "query": "?status=failed",
        },
    ]


def _count(state: dict[str, Any]) -> str:
    return plots.number(state["emails"]) + ("+" if state["at_least"] else "")


def alert_of(alert: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return an alert as pages show it."""
    return {
        "rule": alert["rule"],
        "subject": alert["subject"] or "",
        "severity": alert["severity"],
        "means": alert["means"],
        "age": words.age(alert["since"], now),
        "figure": f"{alert['figure']:g}" if alert["figure"] is not None else "",
        "unit": alert["unit"] or "",
    }


def _provider(provider: dict[str, Any], now: datetime) -> dict[str, Any]:
    state, mood = state_of(provider, now)
    return {
        "name": provider["provider"],
        "kind": provider["kind"],
        "state": state,
        "mood": mood,
        "sent": plots.number(provider["sent_24h"]),
        "failed": plots.number(provider["failed_24h"]),
        "quota": f"{provider['quota_used']:g} %" if provider["quota_used"] is not None else "",
        "routes": ", ".join(provider["routes"] or ()),
    }


def state_of(provider: dict[str, Any], now: datetime) -> tuple[str, str]:
    """Say whether a provider sends, and if not, why and until when."""
    paused = words.instant(provider["paused_until"])
    if not provider["enabled"]:
        return "not used", words.PLAIN
    if (provider["paused_until"] and paused is None) or (paused and paused > now):
        until = f", for {words.length(paused - now)} more" if paused else ""
        return f"paused{until}: {provider['pause_reason'] or 'by hand'}", words.WAITING
    if provider["circuit"] != "closed":
        name = provider["circuit"].replace("_", "-")
        return f"circuit {name}: {provider['circuit_reason'] or 'it failed'}", words.BAD
    if provider["limited_by"]:
        return f"limited by its {provider['limited_by']}", words.WAITING
    return ("sends", words.GOOD) if provider["usable"] else ("cannot send", words.BAD)


def _route(route: dict[str, Any], now: datetime) -> dict[str, Any]:
    out = words.instant(route["out_at"])
    waiting = route["waiting"]
    if not waiting:
        done = "nothing waits"
    elif out:
        done = f"in about {words.length(out - now)}"
    else:
        done = "unknown"
    return {
        "name": route["route"],
        "waiting": plots.number(waiting),
        "later": plots.number(route["not_due_yet"]),
        "provider": route["provider"] or "",
        "out": done,
        "why": route["depends_on"] or "",
    }


def _tenant(tenant: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "name": tenant["tenant_id"],
        "backlog": plots.number(tenant["backlog"]),
        "oldest": words.age(tenant["oldest_due"], now),
        "last": words.age(tenant["last_processed_at"], now),
        "weight": f"{tenant['weight']:g}",
        "is_paused": tenant["paused"],
    }


def _worker(worker: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "name": worker["worker"],
        "version": worker["version"] or "",
        "is_alive": worker["alive"],
        "seen": words.age(worker["seen_at"], now),
        "up": words.age(worker["started_at"], now),
        "providers": ", ".join(worker["providers"] or ()),
    }
