"""The tables of the page: lines, their colours, and the forms that change a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from mailgres.page import overview, words
from mailgres.page.plots import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    Row = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    placeholder: str = ""
    kind: str = "text"
    value: str = ""


@dataclass(frozen=True)
class Action:
    """A form that changes one thing: where it is sent, what it says, and its fields."""

    path: str
    label: str
    about: str
    fields: Sequence[Field] = ()
    is_dangerous: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a table: its name, its cells with a colour, and what can be done."""

    name: str
    cells: Sequence[tuple[str, str]]
    actions: Sequence[Action] = ()
    tenant: str = ""


WHY = Field("reason", "Reason", "optional")
FOR = Field("length", "For how long", "until resumed; or 30m, 2h, 1d")
PAUSE_PROVIDER = Action("providers/pause", "Pause", "No worker calls it meanwhile.", (FOR, WHY))
RESUME_PROVIDER = Action("providers/resume", "Resume", "Workers call it again at once.")
RESET_PROVIDER = Action("providers/reset", "Reset", "Closes its circuit and ends its waits.")
PAUSE_ROUTE = Action("routes/pause", "Pause", "Its emails wait.")
RESUME_ROUTE = Action("routes/resume", "Resume", "Its emails are sent again.")
PAUSE_TENANT = Action("tenants/pause", "Pause", "Its emails wait.", (WHY,))
RESUME_TENANT = Action("tenants/resume", "Resume", "Its emails are sent again.")
RELEASE = Action(
    "suppressions/remove", "Remove", "The address gets email again.", is_dangerous=True
)
SUPPRESS = Action(
    "suppressions/add",
    "Suppress an address",
    "It gets no email any more.",
    (
        Field("name", "Address", "name@example.com", "email"),
        Field("tenant", "Tenant", "all tenants"),
        Field("reason", "Note", "optional"),
    ),
)


def provider_line(row: Row, now: datetime) -> Line:
    """Return a provider with what can be done to it."""
    state, mood = overview.state_of(row, now)
    quota = f"{row['quota_used']:g} %" if row["quota_used"] is not None else "no quota"
    cells = [
        (state, mood),
        (number(row["sent_24h"]), ""),
        (number(row["failed_24h"]), ""),
        (quota, ""),
        (", ".join(row["routes"] or ()) or "none", ""),
    ]
    paused = RESUME_PROVIDER if row["paused_until"] else PAUSE_PROVIDER
    reset = [RESET_PROVIDER] if row["circuit"] != "closed" or row["limited_by"] else []
    return Line(row["provider"], cells, [paused, *reset])


def route_line(row: Row) -> Line:
    """Return a route."""
    if row["paused"]:
        state = ("paused", words.WAITING)
    else:
        state = ("sends", words.GOOD) if row["usable"] else ("cannot send", words.BAD)
    cells = [
        state,
        (", ".join(row["providers"]), ""),
        (number(row["tenants"]), ""),
        (row["description"] or "", ""),
    ]
    return Line(row["route"], cells, [RESUME_ROUTE if row["paused"] else PAUSE_ROUTE])


def tenant_line(row: Row, now: datetime) -> Line:
    """Return a tenant."""
    last = words.age(row["last_processed_at"], now)
    cells = [
        ("paused", words.WAITING) if row["paused"] else ("active", words.GOOD),
        (number(row["backlog"]), ""),
        (words.age(row["oldest_due"], now) or "nothing due", ""),
        (f"{last} ago" if last else "never", ""),
        (str(row["weight"]), ""),
    ]
    weight = Action(
        "tenants/weight",
        "Weight",
        "Its share of each round, 1 to 100.",
        (Field("weight", "Weight", kind="number", value=str(row["weight"])),),
    )
    paused = RESUME_TENANT if row["paused"] else PAUSE_TENANT
    return Line(row["tenant_id"], cells, [paused, weight])


def rule_line(row: Row) -> Line:
    """Return an alert rule."""
    threshold = f"{row['threshold']:g}"
    cells = [
        (f"on, {row['severity']}", words.GOOD) if row["enabled"] else ("off", words.PLAIN),
        (f"{threshold} {row['unit']}", ""),
        (row["means"], ""),
    ]
    change = Action(
        "alerts/set",
        "Change",
        "Notifications follow the rule at once.",
        (
            Field("threshold", f"Threshold in {row['unit']}", value=threshold),
            Field("enabled", "On or off", "on, off", value="on" if row["enabled"] else "off"),
        ),
    )
    return Line(row["name"], cells, [change])


def suppression_line(row: Row) -> Line:
    """Return a suppressed address."""
    cells = [
        (row["reason"], words.BAD),
        ("all" if row["tenant_id"] == "*" else row["tenant_id"], ""),
        (row["source"], ""),
        (words.clock(row["created_at"]), ""),
        (row["note"] or row["detail"] or "", ""),
    ]
    return Line(row["recipient_email"], cells, [RELEASE], row["tenant_id"])


# --- dead letters


def group(title: str, rows: list[Row], line: Callable[[Row], Row]) -> Row:
    """Return a table of dead letters."""
    return {"title": title, "rows": [line(row) for row in rows]}


def by_code(row: Row) -> Row:
    """Return a reason and a code."""
    code = row["error_code"] or "none"
    given = {"status": "failed", "reason": row["dead_reason"], "code": code}
    return _linked(f"{row['dead_reason']}, {code}", row["emails"], given)


def by_tenant(row: Row) -> Row:
    """Return a tenant."""
    given = {"status": "failed", "tenant": row["tenant_id"]}
    return _linked(row["tenant_id"], row["emails"], given)


def by_template(row: Row) -> Row:
    """Return a template."""
    given = {"status": "failed", "template": row["template_type"]}
    return _linked(row["template_type"], row["failed"], given)


def _linked(name: str, emails: int, given: Row) -> Row:
    return {"name": name, "emails": number(emails), "query": f"?{urlencode(given)}"}
