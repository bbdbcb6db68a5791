"""One line per email as it goes, in the terminal of `mailgres dev`."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import click

from mailgres.errors import MailgresError
from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.inbox.store import InboxStore

LOOK_SECONDS = 0.15
"""Seconds between two looks at the inbox."""
PAGE_SIZE = 200
MOST = 5000
"""Emails that a look reads; of more at once, only the newest have a line."""
_COLORS = {"sent": "green", "failed": "red", "cancelled": "red", "pending": "yellow"}
_WORDS = {"sent": "captured", "pending": "waits"}


class EmailLines:
    """Prints a line when an email of the inbox is new or has another state."""

    def __init__(self, store: InboxStore) -> None:
        self._store = store
        self._known: dict[Any, tuple[str, int, bool]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mailgres-lines", daemon=True)

    def __enter__(self) -> Self:
        """Start; what is there already gets no line."""
        with suppress(MailgresError):
            self._known = {row["queue_id"]: _state(row) for row in reversed(self._look(MOST))}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        seen = ""
        while not self._stopping.wait(LOOK_SECONDS):
            with suppress(MailgresError):  # the database is away: it is looked at again
                state = self._store.state()
                if state != seen:
                    self._print_new()
                    seen = state

    def _print_new(self) -> None:
        for row in reversed(self._look()):
            if self._is_news(row):
                click.echo(line_of(row))
                self._known.pop(row["queue_id"], None)  # the newest are last
                self._known[row["queue_id"]] = _state(row)
        for oldest in list(self._known)[: -2 * MOST]:
            del self._known[oldest]

    def _is_news(self, row: Mapping[str, Any]) -> bool:
        return not _is_moving(row) and self._known.get(row["queue_id"]) != _state(row)

    def _look(self, least: int = 0) -> list[dict[str, Any]]:
        """Return the newest emails, page by page: at least so many, and all that are news."""
        rows: list[dict[str, Any]] = []
        while len(rows) < MOST:
            at, queue_id = (rows[-1]["at"], rows[-1]["queue_id"]) if rows else (None, None)
            page = self._store.emails(None, at, PAGE_SIZE, queue_id)
            rows += page
            has_news = any(map(self._is_news, page))
            if len(page) < PAGE_SIZE or (len(rows) >= least and not has_news):
                break
        return rows


def _is_moving(row: Mapping[str, Any]) -> bool:
    """Return whether the email is about to be captured: its line comes with that."""
    is_new = row["status"] == "pending" and not row["error_message"]
    return row["status"] == "sending" or (is_new and not _waits(row))


def _waits(row: Mapping[str, Any]) -> bool:
    due = row["next_retry_at"]
    return due is None or due > datetime.now(UTC)


def _state(row: Mapping[str, Any]) -> tuple[str, int, bool]:
    return row["status"], row["retries"] or 0, row["bounced"]


def line_of(row: Mapping[str, Any]) -> str:
    """Return the line of an email: time, state, address, what it is."""
    status = row["status"]
    word = "bounced" if row["bounced"] else _WORDS.get(status, status)
    color = "red" if row["bounced"] else _COLORS.get(status)
    about = row["subject"] or row["template_type"] or ""
    if row["error_message"] and status != "sent":
        about = f"{about}: {row['error_message']}" if about else row["error_message"]
    shown = printable(f"{row['recipient_email']}  {about}")
    return f"{row['at'].astimezone():%H:%M:%S}  {click.style(f'{word:<9}', fg=color)}  {shown}"
