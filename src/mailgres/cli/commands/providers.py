"""`mailgres providers`: list, pause, limit and test providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.commands.providers_test import test
from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import (
    INFINITY,
    NONE,
    Nothing,
    moment,
    print_rows,
    rate,
    reader,
    when,
)
from mailgres.cli.support.tables import harmless
from mailgres.values.kinds import Duration, Number, Or, PerTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime, timedelta

    from mailgres.values.kinds import Rate

_HEAD = ("provider", "kind", "circuit", "tokens", "today", "this month", "routes")
_LENGTH = Duration("1s", "3650d")
_RATE = Or("none", PerTime())
_QUOTA = Or("none", Number(1, 2_000_000_000))


_name_argument = click.argument("name", shell_complete=names_of("providers"))


@click.group(cls=Group)
def providers() -> None:
    """List, pause, limit and test providers.

    Changes apply to all workers immediately, also to workers that start later.
    """


providers.add_command(test)


@providers.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the providers: circuit, pause, tokens, quotas, routes.

    Tokens are the emails and calls that the rate limits allow now. Day and month are in UTC.

    \b
    Examples:
      mailgres providers list
      mailgres providers list --json | jq '.[] | select(.usable | not)'
    """
    with operator(database_url) as database:
        found = database.ask("providers")
    print_rows(found, _HEAD, _row, json_=as_json_, remarks=_remarks)


@providers.command()
@_name_argument
@click.option(
    "--until", type=when, metavar="TIME", help="Until this time, such as 2027-01-31T09:00."
)
@click.option(
    "--for", "length", type=reader(_LENGTH), metavar="DURATION", help="For this duration."
)
@click.option("--reason", help="The reason, shown in lists.")
@dry_run_option
@database_url_option
def pause(
    *,
    name: str,
    until: datetime | None,
    length: timedelta | None,
    reason: str | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Send nothing through a provider until a given time or until it is resumed.

    Calls in progress are finished. The next provider of a route is the fallback.

    \b
    Examples:
      mailgres providers pause resend --for 2h --reason "they are down"
      mailgres providers pause resend --until 2027-01-31T09:00
    """
    if until and length:
        raise click.UsageError("Give --until or --for, not both.")
    orders = {"until": until, "length": length, "reason": reason}
    _order(database_url, "pause_provider", name, dry_run=dry_run, **orders)


@providers.command()
@_name_argument
@dry_run_option
@database_url_option
def resume(*, name: str, dry_run: bool, database_url: str | None) -> None:
    """End the pause of a provider.

    \b
    Example:
      mailgres providers resume resend
    """
    _order(database_url, "resume_provider", name, dry_run=dry_run)


@providers.command()
@_name_argument
@dry_run_option
@database_url_option
def reset(*, name: str, dry_run: bool, database_url: str | None) -> None:
    """Close the circuit of a provider and release the emails that wait for it.

    Use it when the problem is fixed. Emails that wait for its limits, its circuit or their sender's
    configuration are due at once; uncertain emails keep their key. A used-up quota stays used up.

    \b
    Example:
      mailgres providers reset resend
    """
    _order(database_url, "reset_provider", name, dry_run=dry_run)


@providers.command()
@_name_argument
@click.option("--rate", "rate_", type=reader(_RATE), metavar="RATE|none", help="Emails per time.")
@click.option("--daily", type=reader(_QUOTA), metavar="N|none", help="Emails per day (UTC).")
@click.option("--monthly", type=reader(_QUOTA), metavar="N|none", help="Emails per month (UTC).")
@dry_run_option
@database_url_option
def limit(
    *,
    name: str,
    rate_: Rate | Nothing | None,
    daily: int | Nothing | None,
    monthly: int | Nothing | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Limit the emails that a provider sends; `none` removes a limit.

    Options that are not given stay as they are. Quotas that a provider reports replace these.

    \b
    Examples:
      mailgres providers limit resend --rate 2/s
      mailgres providers limit resend --daily 100 --monthly 3000
      mailgres providers limit resend --rate none
    """
    given = {"rate": rate_, "daily": daily, "monthly": monthly}
    if all(value is None for value in given.values()):
        raise click.UsageError("Give --rate, --daily or --monthly.")
    orders: dict[str, object] = {f"keep_{key}": value is None for key, value in given.items()}
    orders |= {key: None if value is NONE else value for key, value in given.items()}
    if rate_ is not None and not isinstance(rate_, Nothing):
        orders["rate"] = rate_.per_second
    _order(database_url, "limit_provider", name, dry_run=dry_run, **orders)


def _order(
    database_url: str | None, query: str, name: str, *, dry_run: bool, **parameters: object
) -> None:
    """Change a provider and print its new state."""
    with operator(database_url, name, dry_run=dry_run) as database:
        database.ask(query, name=name, **parameters)
        (found,) = [one for one in database.ask("providers") if one["provider"] == name]
    click.echo(harmless(f"{name}: {'; '.join(_states(found))}"))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["provider"],
        one["kind"],
        one["circuit"],
        ", ".join(_tokens(one)) or "-",
        _quota(one["used_today"], one["daily_quota"]),
        _quota(one["used_this_month"], one["monthly_quota"]),
        ", ".join(one["routes"]) or "-",
    )


def _tokens(one: dict[str, Any]) -> Iterator[str]:
    for tokens, limit_, what in (
        (one["email_tokens"], one["emails_per_second"], ""),
        (one["call_tokens"], one["calls_per_second"], " calls"),
    ):
        if limit_ is not None:
            yield f"{max(tokens, 0):.0f}{what} at {rate(limit_)}"


def _quota(used: int | None, of: int | None) -> str:
    return "-" if of is None else f"{used}/{of}"


def _states(one: dict[str, Any]) -> list[str]:
    limits = [f"{text} left" for text in _tokens(one)]
    quotas = [
        f"{_quota(one[used], one[of])} {when}"
        for used, of, when in (
            ("used_today", "daily_quota", "today"),
            ("used_this_month", "monthly_quota", "this month"),
        )
        if one[of] is not None
    ]
    return [*(list(_remarks(one)) or ["usable"]), *limits, *quotas]


def _remarks(one: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why a provider is not usable."""
    if not one["enabled"]:
        yield "disabled"
    if one["paused_until"]:
        why = f": {one['pause_reason']}" if one["pause_reason"] else ""
        ends = f"; `mailgres providers resume {one['provider']}` ends it"
        last = ends if one["paused_until"] == INFINITY else ""
        yield f"paused until {moment(one['paused_until'])}{why}{last}"
    if one["circuit"] != "closed":
        state = one["circuit"].replace("_", " ")
        until = f", next probe at {moment(one['circuit_until'])}" if one["circuit_until"] else ""
        why = f": {one['circuit_reason']}" if one["circuit_reason"] else ""
        yield f"{state} circuit since {moment(one['circuit_since'])}{until}{why}"
        yield f"when it is fixed: mailgres providers reset {one['provider']}"
    if one["limited_until"]:
        what = "rate-limited" if one["limited_by"] == "rate" else "out of quota"
        yield f"{what} until {moment(one['limited_until'])}"
