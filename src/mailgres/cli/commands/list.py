"""`mailgres list`: find emails by a filter."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.filters import DAY, check_names, filter_options
from mailgres.cli.support.ids import short_ids
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option, limit_option
from mailgres.cli.support.output import INFINITY, print_rows, status, time_cell
from mailgres.cli.support.tables import Cell, Column

if TYPE_CHECKING:
    from mailgres.cli.support.filters import Filter

SEARCH_TIMEOUT = "60s"
"""Time limit for a search through all emails."""

SORTS = ("newest", "oldest", "due", "retries", "priority")
HEAD = (
    "id",
    "enqueued",
    "status",
    Column("template", least=12),
    Column("recipient", least=16),
    Column("tenant", spare="default", below="tenant {}"),
    "attempts",
    Column("", below="{}"),
)


@click.command("list")
@filter_options(DAY)
@click.option(
    "--sort",
    type=click.Choice(SORTS, case_sensitive=False),
    default="newest",
    show_default=True,
    help="Order: `due` by the next attempt, `retries` most first, `priority` most urgent first.",
)
@limit_option
@json_option
@database_url_option
def list_(
    *, chosen: Filter, sort: str, limit: int, as_json_: bool, database_url: str | None
) -> None:
    """List emails, by default those of the last 24 hours.

    Emails stay in the queue until their retention expires. Dead emails are moved to an archive
    after a week, where `mailgres dlq` finds them.

    At a terminal the table fits its width, and ids are short: every command accepts the first
    digits of an id. In a pipe all values are complete.

    \b
    Examples:
      mailgres list --status failed --since 7d
      mailgres list --recipient ana@example.com --since all
      mailgres list --template welcome_user --sort retries --limit 10
      mailgres list --status pending --sort due --json | jq -r '.[].id'
    """
    with operator(database_url, timeout=SEARCH_TIMEOUT) as database:
        found = database.ask("list", filter=chosen.json, sort=sort, limit=limit + 1)
        if not found:
            check_names(database, chosen)
        short = short_ids(database, found[:limit])
    empty = f"No email matches: {chosen.describe()}."
    print_rows(found, HEAD, partial(_row, short), json_=as_json_, empty=empty, limit=limit)


def _row(short: dict[str, str], email: dict[str, Any]) -> tuple[str, ...]:
    return (
        short.get(email["id"], email["id"]),
        time_cell(email["created_at"]),
        status(email["status"]),
        email["template_type"],
        email["recipient_email"],
        email["tenant_id"],
        f"{_attempts(email)}/{email['max_retries'] + 1}",
        _note(email),
    )


def _attempts(email: dict[str, Any]) -> int:
    """Return the number of attempts."""
    tried = email["last_attempt_at"] is not None
    waits = email["status"] == "pending"
    return int(email["retries"]) + (1 if tried and not waits else 0)


def _note(email: dict[str, Any]) -> str:
    """Return the most useful detail for the status of an email."""
    code = email["error_code"]
    match email["status"]:
        case "sent":
            return Cell(f"by {email['provider']}", "") if email["provider"] else ""
        case "failed":
            return ": ".join(filter(None, (email["dead_reason"], code)))
        case "pending":
            why = f"{code}; " if code else ""
            never = email["next_retry_at"] == INFINITY
            due = time_cell(email["next_retry_at"])
            texts = ("never due",) * 2 if never else (f"next {due}", f"next {due.short}")
            return Cell(*(why + text for text in texts))
        case _:
            return str(code or "")
