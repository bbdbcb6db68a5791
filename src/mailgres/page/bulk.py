"""Bulk actions: retry, cancel or reschedule all emails that match the filter of the list.

First a dry run, then the action itself, which goes on without the browser: see `bulk_runner`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from mailgres.errors import DatabaseUnreachable
from mailgres.page import filters, words
from mailgres.page.plots import number
from mailgres.page.rendering import pages
from mailgres.web import HEADERS, TOO_SLOW, as_number, in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.page.bulk_runner import BulkRunner
    from mailgres.page.handlers import Handlers
    from mailgres.page.store import PageStore

    Row = dict[str, Any]

ACTIONS = {
    "retry": ("Retry", "retried"),
    "cancel": ("Cancel", "cancelled"),
    "reschedule": ("Reschedule", "rescheduled"),
}
"""The actions: how a button and a sentence name them."""
STATES = {"running": words.WAITING, "stopped": words.BAD, "done": words.GOOD}
TOO_MANY = "It takes too long to find the emails: add a status, a tenant or a shorter period."
GONE = "There is no such bulk action. They are deleted 30 days after they ended."
MOST_REASON = 200
MOST_ID = 2**63 - 1


@dataclass(frozen=True)
class Asked:
    """An action that an operator chose, and its emails."""

    action: str
    chosen: filters.Filter
    reason: str = ""
    at: str = ""
    accept: bool = False

    def options(self) -> dict[str, object]:
        """Return the options of the action."""
        if self.action == "retry":
            return {"accept_duplicates": self.accept}
        if self.action == "cancel":
            return {"reason": self.reason or None}
        return {"scheduled_for": _time(self.at).isoformat()}

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the queries."""
        return {
            "action": self.action,
            "filter": Jsonb(self.chosen.as_json()),
            "options": Jsonb(self.options()),
        }


class Bulk:
    """The handlers; each runs behind a rule of the table of routes."""

    def __init__(self, store: PageStore, common: Handlers, runner: BulkRunner) -> None:
        self._store = store
        self._common = common.common
        self._runner = runner

    async def show_list(self, request: Request) -> Response:
        """Show the newest bulk actions of all operators."""
        self._runner.wake()
        role = request.state.session.user.role
        rows = await in_thread(self._store.read, role, "bulk_actions")
        values = {"actions": [view_of(row["row"]) for row in rows]}
        return pages("bulk.html", self._common(request) | values)

    async def show_new(self, request: Request) -> Response:
        """Ask what to do with the emails that match; with an action, make the dry run."""
        asked = _asked(request.query_params)
        values = self._common(request) | {
            "asked": asked,
            "chosen": asked.chosen,
            "about": describe(asked.chosen.as_json()) or "all emails",
            "list": f"?{asked.chosen.query}",
            "fields": filters.FIELDS,
            "actions": [(name, label) for name, (label, _) in ACTIONS.items()],
            "found": None,
        }
        if asked.action:
            values |= await self._dry_run(request, asked)
        return pages("bulk_new.html", values)

    async def _dry_run(self, request: Request, asked: Asked) -> Row:
        """Count what would be done, and fix the period: emails that come later are left out."""
        role = request.state.session.user.role
        preview = ("preview_bulk_action", asked.parameters())
        with _asking_for_less():
            groups, (row,) = await in_thread(self._store.read_all, role, preview, ("now", {}))
        until = min(asked.chosen.until_at or row["now"], row["now"])
        fixed = replace(
            asked.chosen,
            since=asked.chosen.since_at.isoformat() if asked.chosen.since_at else "",
            until=until.isoformat(),
        )
        doable = sum(group["emails"] for group in groups if group["code"] is None)
        return {
            "found": {
                "doable": number(doable),
                "refused": [
                    group | {"emails": number(group["emails"])} for group in groups if group["code"]
                ],
                "is_empty": not groups,
                "can_start": doable > 0,
            },
            "label": ACTIONS[asked.action][0],
            "past": ACTIONS[asked.action][1],
            "fixed": [(name, getattr(fixed, name)) for name in filters.FIELDS],
        }

    async def start(self, request: Request) -> Response:
        """Start an action on the emails that match now."""
        asked = _asked(request.state.form)
        if not asked.action:
            raise HTTPException(400, "Choose what to do.")
        user = request.state.session.user
        given = asked.parameters()
        with _asking_for_less():
            (row,) = await in_thread(self._store.change, user, "start_bulk_action", **given)
        self._runner.wake()
        return RedirectResponse(f"bulk/{row['id']}", 303, HEADERS)

    async def show(self, request: Request) -> Response:
        """Show how far an action is."""
        return pages("bulk_action.html", self._common(request) | await self._find(request))

    async def show_live(self, request: Request) -> Response:
        """Return the part of that page that changes."""
        return pages("bulk_progress.html", self._common(request) | await self._find(request))

    async def stop(self, request: Request) -> Response:
        """Stop an action after its current chunk, whoever started it."""
        return await self._change(request, "stop_bulk_action")

    async def resume(self, request: Request) -> Response:
        """Let a stopped action go on."""
        answer = await self._change(request, "resume_bulk_action")
        self._runner.wake()
        return answer

    async def _find(self, request: Request) -> Row:
        self._runner.wake()
        found = await in_thread(
            self._store.read, request.state.session.user.role, "bulk_action", id=_number(request)
        )
        if not found:
            raise HTTPException(404, GONE)
        return {"action": view_of(found[0]["row"])}

    async def _change(self, request: Request, query: str) -> Response:
        action = _number(request)
        await in_thread(self._store.change, request.state.session.user, query, id=action)
        return RedirectResponse(f"../{action}", 303, HEADERS)


@contextmanager
def _asking_for_less() -> Iterator[None]:
    """Say what to do when it takes too long to find the emails."""
    try:
        yield
    except DatabaseUnreachable as error:
        if error is not TOO_SLOW:
            raise
        raise HTTPException(400, TOO_MANY) from None


def view_of(row: Row) -> Row:
    """Return an action as pages show it."""
    label, past = ACTIONS[row["action"]]
    refused = sum(each["emails"] for each in row["refused"].values())
    looked = row["done"] + refused
    return row | {
        "label": label,
        "past": past,
        "about": describe(row["filter"]),
        "query": "?" + urlencode(_as_query(row["filter"])),
        "mood": STATES[row["state"]],
        "looked": looked,
        "chosen_text": number(row["chosen"]),
        "done_text": number(row["done"]),
        "left_text": number(max(row["chosen"] - looked, 0)),
        "refused_text": number(refused),
        "reasons": [
            (message, number(each["emails"]), each["hint"])
            for message, each in row["refused"].items()
        ],
    }


def describe(given: Mapping[str, Any]) -> str:
    """Return a filter in words."""
    return ", ".join(f"{name.replace('_', ' ')} {_words(value)}" for name, value in given.items())


def _words(value: str | list[str]) -> str:
    """Return a value of a filter in words: a list, or else a time."""
    if isinstance(value, str):
        return words.clock(value)
    return " or ".join(
        words.STATUSES[each][0] if each in words.STATUSES else each for each in value
    )


def _as_query(given: Mapping[str, Any]) -> dict[str, str]:
    """Return a filter as the parameters of the list; it has one status."""
    names = {"error_code": "code", "dead_reason": "reason"}
    return {
        names.get(name, name): value[0] if isinstance(value, list) else value
        for name, value in given.items()
    }


# --- what people enter


def _asked(given: Mapping[str, str]) -> Asked:
    action = given.get("action", "")
    if action and action not in ACTIONS:
        raise HTTPException(400, "Choose retry, cancel or reschedule.")
    try:
        chosen = filters.read(given, datetime.now(UTC))
    except filters.BadFilter as error:
        raise HTTPException(400, str(error)) from None
    reason = given.get("why", "").replace("\0", "").strip()[:MOST_REASON]
    return Asked(action, chosen, reason, given.get("at", "").strip(), given.get("accept") == "yes")


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, f"{text[:40] or 'Nothing'} is not a time.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _number(request: Request) -> int:
    found = as_number(request.path_params["number"])
    return MOST_ID if found is None else min(found, MOST_ID)
