"""Operates providers, routes, tenants, alerts, suppressions by the functions of the command line.

Also shows dead letters by reason, code, tenant and template, with the runbook.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from mailgres import runbook
from mailgres.page import overview, tables
from mailgres.page.plots import number
from mailgres.page.rendering import pages
from mailgres.values.kinds import BadValue, Duration
from mailgres.web import HEADERS, in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.page.handlers import Handlers
    from mailgres.page.store import PageStore

    Row = dict[str, Any]

MOST_NAME = 254
MOST_REASON = 500
_LENGTH = Duration("1s", "3650d")


class Operate:
    """The handlers; each runs behind a rule of the table of routes."""

    def __init__(self, store: PageStore, common: Handlers) -> None:
        self._store = store
        self._common = common.common

    # --- tables

    async def show_providers(self, request: Request) -> Response:
        """Show which providers send, and why the others do not."""
        now = datetime.now(UTC)
        rows = await self._rows(request, "providers")
        head = ("Provider", "State", "Sent 24 h", "Failed 24 h", "Quota used", "Routes")
        lines = [tables.provider_line(row, now) for row in rows]
        return self._table(request, "providers", head, lines)

    async def show_routes(self, request: Request) -> Response:
        """Show the providers of each route."""
        rows = await self._rows(request, "routes")
        head = ("Route", "State", "Providers, in order", "Tenants", "Description")
        return self._table(request, "routes", head, [tables.route_line(row) for row in rows])

    async def show_tenants(self, request: Request) -> Response:
        """Show the tenants with the longest backlogs, or one by name."""
        now = datetime.now(UTC)
        name = _text(request.query_params.get("q", ""), MOST_NAME)
        rows = await self._rows(request, "tenants", name=name or None)
        head = ("Tenant", "State", "Backlog", "Oldest due", "Last processed", "Weight")
        lines = [tables.tenant_line(row, now) for row in rows]
        return self._table(request, "tenants", head, lines, search=name)

    async def show_alerts(self, request: Request) -> Response:
        """Show the alerts that fire, with the runbook, and the rules to operators."""
        now = datetime.now(UTC)
        firing = [row["row"] for row in await self._read(request, "alerts")]
        rules = (
            await self._rows(request, "alert_rules")
            if request.state.session.user.is_operator
            else []
        )
        about = runbook.sections()
        alerts = [
            overview.alert_of(each, now) | {"runbook": about.get(each["rule"], "")}
            for each in firing
        ]
        head = ("Rule", "State", "Threshold", "Means")
        lines = [tables.rule_line(row) for row in rules]
        return self._table(request, "alerts", head, lines, alerts=alerts)

    async def show_suppressions(self, request: Request) -> Response:
        """Show the newest suppressions, or those whose address contains a text."""
        text = _text(request.query_params.get("q", ""), MOST_NAME)
        given = Jsonb({"containing": text} if text else {})
        rows = await self._rows(request, "suppressions", filter=given)
        head = ("Address", "Reason", "Tenant", "Source", "Since", "Note")
        lines = [tables.suppression_line(row) for row in rows]
        return self._table(request, "suppressions", head, lines, search=text, add=tables.SUPPRESS)

    async def show_dead_letters(self, request: Request) -> Response:
        """Show dead letters by reason, code, tenant and template, with the runbook."""
        ((found,),) = ((row["found"],) for row in await self._read(request, "dead_letters"))
        values = self._common(request) | {
            "size": number(found["size"]["emails"]),
            "oldest": found["size"]["oldest"] or "",
            "tables": [
                tables.group("Reason and code", found["codes"], tables.by_code),
                tables.group("Tenant", found["tenants"], tables.by_tenant),
                tables.group("Template, 7 days", found["templates"], tables.by_template),
            ],
            "ages": [(each["age"], number(each["emails"])) for each in found["ages"]],
            "runbook": runbook.sections().get("dead_letters", ""),
        }
        return pages("dead_letters.html", values)

    async def _read(self, request: Request, query: str, **parameters: object) -> list[Row]:
        role = request.state.session.user.role
        return await in_thread(self._store.read, role, query, **parameters)

    async def _rows(self, request: Request, query: str, **parameters: object) -> list[Row]:
        return [row["row"] for row in await self._read(request, query, **parameters)]

    def _table(
        self,
        request: Request,
        kind: str,
        head: Sequence[str],
        lines: Sequence[tables.Line],
        *,
        search: str | None = None,
        add: tables.Action | None = None,
        alerts: Sequence[Row] = (),
    ) -> Response:
        values = self._common(request) | {
            "kind": kind,
            "head": head,
            "lines": lines,
            "search": search,
            "add": add,
            "alerts": alerts,
            "done": request.query_params.get("done") == "1",
        }
        return pages("operate.html", values)

    # --- changes

    async def pause_provider(self, request: Request) -> Response:
        """Stop calling a provider for a while."""
        length = _length(request.state.form.get("length", ""))
        reason = _reason(request)
        return await self._change(request, "pause_provider", length=length, reason=reason)

    async def resume_provider(self, request: Request) -> Response:
        """Call a provider again."""
        return await self._change(request, "resume_provider")

    async def reset_provider(self, request: Request) -> Response:
        """Close the circuit of a provider."""
        return await self._change(request, "reset_provider")

    async def pause_route(self, request: Request) -> Response:
        """Let the emails of a route wait."""
        return await self._change(request, "pause_route")

    async def resume_route(self, request: Request) -> Response:
        """Send the emails of a route again."""
        return await self._change(request, "resume_route")

    async def pause_tenant(self, request: Request) -> Response:
        """Let the emails of a tenant wait."""
        return await self._change(request, "pause_tenant", reason=_reason(request))

    async def resume_tenant(self, request: Request) -> Response:
        """Send the emails of a tenant again."""
        return await self._change(request, "resume_tenant")

    async def set_weight(self, request: Request) -> Response:
        """Give a tenant a larger or smaller share."""
        weight = int(_number(request.state.form.get("weight", ""), most=2**31 - 1))
        return await self._change(request, "set_tenant_weight", weight=weight)

    async def set_rule(self, request: Request) -> Response:
        """Change the threshold of an alert rule, or switch it on or off."""
        form = request.state.form
        given = form.get("threshold", "").strip()
        threshold = _number(given) if given else None
        enabled = {"on": True, "off": False}.get(form.get("enabled", ""))
        return await self._change(request, "set_alert_rule", threshold=threshold, enabled=enabled)

    async def suppress(self, request: Request) -> Response:
        """Suppress an address."""
        form = request.state.form
        entry = {
            "recipient_email": _text(form.get("name", ""), MOST_NAME),
            "tenant_id": _text(form.get("tenant", ""), MOST_NAME),
            "note": _reason(request),
        }
        user = request.state.session.user
        (row,) = await in_thread(self._store.change, user, "suppress", entries=Jsonb([entry]))
        if row["row"]["outcome"] not in ("added", "known"):
            raise HTTPException(400, f"The {row['row']['outcome']} is not valid.")
        return _back(request)

    async def unsuppress(self, request: Request) -> Response:
        """Let an address get email again."""
        tenant = _text(request.state.form.get("tenant", ""), MOST_NAME) or "*"
        return await self._change(request, "unsuppress", tenant=tenant)

    async def _change(self, request: Request, query: str, **parameters: object) -> Response:
        """Run a change of one thing, by its name."""
        name = request.state.form.get("name", "")
        if not name or len(name) > MOST_NAME or "\0" in name:
            raise HTTPException(400, "The form names nothing that could be changed.")
        user = request.state.session.user
        await in_thread(self._store.change, user, query, name=name, **parameters)
        return _back(request)


def _back(request: Request) -> Response:
    """Return to the table: `providers/pause` leads to `../providers`."""
    kind = request.url.path.rpartition("/")[0].rpartition("/")[2]
    return RedirectResponse(f"../{kind}?done=1", 303, HEADERS)


# --- what people enter


def _text(given: str, most: int) -> str:
    return given.replace("\0", "").strip()[:most]


def _reason(request: Request) -> str:
    """Return the reason with the name of the person: not every change has a log."""
    given = _text(request.state.form.get("reason", ""), MOST_REASON)
    name = request.state.session.user.name
    return f"{given} ({name})" if given else f"by {name}"


def _length(given: str) -> timedelta | None:
    if not given.strip():
        return None
    try:
        return _LENGTH.parse(given.strip())
    except (BadValue, OverflowError):
        raise HTTPException(400, f"{given[:40]} is not a duration: use 30m, 2h or 1d.") from None


def _number(given: str, most: float = 1e15) -> float:
    try:
        found = float(given)
    except ValueError:
        found = float("nan")
    if not abs(found) <= most:
        raise HTTPException(400, f"{given[:40] or 'Nothing'} is not a number.")
    return found
