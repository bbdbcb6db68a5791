"""`mailgres eta`: when the backlog will be sent."""

from __future__ import annotations

from typing import Any

import click

from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import moment, print_rows

COUNT_TIMEOUT = "60s"
"""Time limit for counting."""

REASONS = {
    "quota": "by the quota of {provider}",
    "rate": "by the rate limit of {provider}",
    "rate of a tenant": "by the rate limit of a tenant",
    "paused": "{provider} is paused",
    "circuit": "the circuit of {provider} is open",
    "disabled": "{provider} is disabled",
    "throughput": "at the rate of the last 15 minutes",
    "schedule": "the last email is due then",
    "route paused": "the route is paused",
    "no provider": "the route has no provider",
    "unknown": "nothing was sent by {provider} in the last 15 minutes",
}


@click.command()
@json_option
@database_url_option
def eta(*, as_json_: bool, database_url: str | None) -> None:
    """Estimate when all pending emails will have been sent.

    The estimate for a route uses its first usable provider: the limits and quotas, or the rate of
    the last 15 minutes.

    \b
    Examples:
      mailgres eta
      mailgres eta --json | jq -r '.[].at'
    """
    with operator(database_url, timeout=COUNT_TIMEOUT) as database:
        found = database.ask("eta")
    head = ("route", "emails", "sent at", "reason")
    print_rows(found, head, _row, json_=as_json_, empty="No email is pending.")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    at = moment(one["at"]) if one["at"] else "unknown"
    return one["route"], str(one["emails"]), at, _why(one)


def _why(one: dict[str, Any]) -> str:
    text = REASONS[one["why"]].format(**one)
    later = f"; {one['later']} of them not due yet" if one["later"] else ""
    return text + later
