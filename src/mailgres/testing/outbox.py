"""The outbox of a test: what was enqueued, what it became, faults on demand, and time travel.

It sends by itself, with the provider `capture`, when a test says so: no worker has to run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from mailgres import database, queries
from mailgres.settings import load
from mailgres.sqlstates import from_database
from mailgres.testing import clock
from mailgres.worker import open_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mailgres.worker import Pipeline, Summary

Fault = Literal["bounce", "timeout", "reject", "unanswered"]

POLL_SECONDS = 0.02
"""How often `wait_for` looks for emails that another thread or process enqueues."""
_ROUNDS = 100
_MOST = 1000


class EmailNotFound(AssertionError):
    """The outbox does not have the email that a test expects; the message lists what it has."""


@dataclass(frozen=True)
class CapturedEmail:
    """An email: the request of the application, and the message that a provider would have got.

    `from_email`, `subject`, `text` and `html` are None until it is sent.
    """

    id: UUID
    to: str
    template: str
    tenant: str
    status: str
    payload: dict[str, Any]
    retries: int
    enqueued_at: datetime
    scheduled_for: datetime | None = None
    next_attempt_at: datetime | None = None
    dead_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    from_email: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    also_to: list[str] = field(default_factory=list)
    cc: list[str] = field(default_factory=list)
    bcc: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    attachments: list[str] = field(default_factory=list)
    """The names of the files."""
    events: list[str] = field(default_factory=list)
    """What happened to it, in order: `retry`, `sent`, `bounced` …"""

    @property
    def is_sent(self) -> bool:
        """Whether a provider accepted it."""
        return self.status == "sent"


class Outbox:
    """The emails of one database, for a test.

    `settings` are flags of the worker that sends, such as `from_email`.
    """

    def __init__(self, url: str, settings: Mapping[str, str] | None = None) -> None:
        self.url = url
        flags = {**(settings or {}), "database_url": url, "providers": "capture"}
        self._settings = load({}, flags)
        self._queries = queries.load("testing/outbox.sql")
        self._connection = database.connect(url, autocommit=True)
        self._opened: AbstractContextManager[Pipeline] | None = None
        self._pipeline: Pipeline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.emails())

    def __iter__(self) -> Iterator[CapturedEmail]:
        return iter(self.emails())

    def emails(
        self, *, to: str | None = None, template: str | None = None, status: str | None = None
    ) -> list[CapturedEmail]:
        """Return the emails that were enqueued and committed, oldest first."""
        given = {"to": to, "template": template, "status": status, "limit": _MOST}
        return [_email(row["email"]) for row in self._ask("emails", **given)]

    def only(self, *, to: str | None = None, template: str | None = None) -> CapturedEmail:
        """Return the one email to an address, or of a template; fail if there are none or more."""
        found = self.emails(to=to, template=template)
        if len(found) != 1:
            wanted = _wanted(to, template)
            raise EmailNotFound(f"There are {len(found)} emails{wanted}, not 1.{self._listed()}")
        return found[0]

    def wait_for(
        self, *, to: str | None = None, template: str | None = None, timeout: float = 5.0
    ) -> CapturedEmail:
        """Send what is due until such an email is sent, and return the newest one.

        The email may be enqueued by another thread or process meanwhile. A test that enqueues
        itself does not wait: what is due is sent at once, and what is not due yet, or dead, fails
        the test after `timeout` seconds with a list of all emails.
        """
        ends = time.monotonic() + timeout
        while True:
            self.drain()
            if found := self.emails(to=to, template=template, status="sent"):
                return found[-1]
            if time.monotonic() >= ends:
                wanted = _wanted(to, template)
                raise EmailNotFound(
                    f"No email{wanted} was sent within {timeout:g} s.{self._listed()}"
                )
            time.sleep(POLL_SECONDS)

    def drain(self) -> Summary:
        """Send everything that is due now, also retries that are due, and return the counts.

        Reports of simulated bounces are recorded, and what has expired dies. What is due later
        stays: move the clock with `travel`.
        """
        if self._pipeline is None:
            self._opened = open_pipeline(self._settings, on_demand=True, guest=True)
            self._pipeline = self._opened.__enter__()
        self._ask("expire")
        done = self._pipeline.worker().drain()
        for _ in range(_ROUNDS):
            if not self._ask("report")[0]["report_captured"]:
                break
        return done

    def fail_next(
        self, fault: Fault, *, to: str | None = None, template: str | None = None
    ) -> None:
        """Let the next email to an address, of a template, or at all fail once.

        `bounce`: it is sent, and reported as bounced. `timeout`: the provider does not answer, and
        the email is retried. `reject`: the provider refuses it for good. `unanswered`: the provider
        accepts it, but its answer is lost.
        """
        self._ask("set_fault", fault=fault, recipient=to, template=template)

    def travel(self, by: timedelta) -> None:
        """Move the clock of mailgres."""
        clock.travel(self._connection, by)

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock of mailgres, by default now; only `travel` then moves it."""
        clock.freeze(self._connection, at)

    def clear(self) -> None:
        """Delete all emails, faults and suppressions, and restore the real time."""
        clock.reset(self._connection)
        self._ask("clear")

    def close(self) -> None:
        """End the worker and the connections."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = self._pipeline = None
        self._connection.close()

    def _ask(self, query: str, **parameters: object) -> list[dict[str, Any]]:
        try:
            with self._connection.cursor(row_factory=dict_row) as cursor:
                cursor.execute(self._queries[query], parameters or None)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise from_database(error) or error from None

    def _listed(self) -> str:
        emails = self.emails()
        if not emails:
            return (
                " The outbox is empty: nothing was enqueued, or its transaction is not committed."
            )
        return "".join(["\nThe outbox has:", *(f"\n  {_line(one)}" for one in emails)])


def _email(row: dict[str, Any]) -> CapturedEmail:
    times = ("enqueued_at", "scheduled_for", "next_attempt_at")
    read = {name: _time(row[name]) for name in times}
    given = {name: value for name, value in (row | read).items() if value is not None}
    return CapturedEmail(**(given | {"id": UUID(row["id"])}))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _wanted(to: str | None, template: str | None) -> str:
    return (f" to {to}" if to else "") + (f" of {template}" if template else "")


def _line(one: CapturedEmail) -> str:
    why = one.dead_reason or one.error_code or ""
    if one.status == "pending" and one.next_attempt_at:
        why = f"{why}, next attempt at {one.next_attempt_at:%Y-%m-%d %H:%M:%S}".lstrip(", ")
    return f"{one.to}, {one.template}: {one.status}" + (f" ({why})" if why else "")
