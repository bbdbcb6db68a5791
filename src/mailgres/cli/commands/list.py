"""`mailgres list`: emails by what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.filters import DAY, check_names, filter_options
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option, limit_option
from mailgres.cli.support.output import INFINITY, moment, print_rows, status

if TYPE_CHECKING:
    from mailgres.cli.support.filters import Filter

SEARCH_TIMEOUT = "60s"
"""How long a search through all emails may take."""

SORTS = ("newest", "oldest", "due", "retries", "priority")
HEAD = ("id", "enqueued", "status", "template", "recipient", "tenant", "tries", "")


@click.command("list")
@filter_options(DAY)
@click.option(
    "--sort",
    type=click.Choice(SORTS, case_sensitive=False),
    default="newest",
    show_default=True,
    help="What comes first: `due` is the next try, `retries` most, `priority` most urgent.",
)
@limit_option
@json_option
@database_url_option
def list_(
    *, chosen: Filter, sort: str, limit: int, as_json_: bool, database_url: str | None
) -> None:
    """List emails, those of the last 24 hours unless --since says otherwise.

    Emails stay in the queue until their retention is over; dead ones go to an archive after a
    week, where `mailgres dlq` finds them.

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
    empty = f"No email matches: {chosen.describe()}."
    print_rows(found, HEAD, _row, json_=as_json_, empty=empty, limit=limit)


def _row(email: dict[str, Any]) -> tuple[str, ...]:
    return (
        email["id"],
        moment(email["created_at"]),
        status(email["status"]),
        email["template_type"],
        email["recipient_email"],
        email["tenant_id"],
        f"{_attempts(email)}/{email['max_retries'] + 1}",
        _note(email),
    )


def _attempts(email: dict[str, Any]) -> int:
    """How many tries there were: none, while nobody has claimed it."""
    tried = email["last_attempt_at"] is not None
    waits = email["status"] == "pending"
    return int(email["retries"]) + (1 if tried and not waits else 0)


def _note(email: dict[str, Any]) -> str:
    """What one wants to know next about an email in its state."""
    code = email["error_code"]
    match email["status"]:
        case "sent":
            return f"by {email['provider']}" if email["provider"] else ""
        case "failed":
            return ": ".join(filter(None, (email["dead_reason"], code)))
        case "pending":
            why = f"{code}; " if code else ""
            never = email["next_retry_at"] == INFINITY
            return f"{why}{'never due' if never else 'next ' + moment(email['next_retry_at'])}"
        case _:
            return str(code or "")
