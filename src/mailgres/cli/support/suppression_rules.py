"""`mailgres suppressions rules`, `set-rule` and `reset-rule`: which events suppress an address."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import NONE, print_rows, reader
from mailgres.cli.support.tables import Column
from mailgres.values.kinds import Duration, Or

if TYPE_CHECKING:
    from mailgres.cli.support.output import Nothing

_EXPIRY = Or("never", Duration("1m", "3650d"))
_SCOPES = {"all": True, "tenant": False}
_HEAD = (
    *("rule", "event", "emails", "suppresses for", "expires", "state"),
    Column("not if the reason is", below="not if the reason is {}"),
)
_rule_argument = click.argument("rule", shell_complete=names_of("suppression_rules"))


@click.command()
@json_option
@database_url_option
def rules(*, as_json_: bool, database_url: str | None) -> None:
    """List the rules by which events of providers suppress addresses.

    In JSON, expires_after is in seconds.

    \b
    Example:
      mailgres suppressions rules
    """
    with operator(database_url) as database:
        found = database.ask("suppression_rules")
    print_rows(found, _HEAD, _row, json_=as_json_)


@click.command("set-rule")
@_rule_argument
@click.option(
    "--needed",
    metavar="NUMBER",
    type=click.IntRange(1, 100),
    help="How many emails in a row need such an event, without a delivery in between.",
)
@click.option(
    "--scope",
    type=click.Choice(tuple(_SCOPES)),
    help="Whether all tenants stop writing to the address, or only that of the email.",
)
@click.option(
    "--expires",
    type=reader(_EXPIRY),
    metavar=_EXPIRY.metavar,
    help="How long a suppression holds.",
)
@click.option("--on/--off", "enabled", default=None, help="Enable or disable the rule.")
@dry_run_option
@database_url_option
def set_rule(
    *,
    rule: str,
    needed: int | None,
    scope: str | None,
    expires: timedelta | Nothing | None,
    enabled: bool | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Change a rule; options that are not given stay as they are.

    It holds for events that come from now on. Suppressions that exist stay as they are:
    `mailgres suppressions release` removes them.

    \b
    Examples:
      mailgres suppressions set-rule soft_bounces --needed 3 --expires 14d
      mailgres suppressions set-rule complaint --scope all
      mailgres suppressions set-rule suppressed_by_provider --on
    """
    given: dict[str, object] = {"needed": needed, "enabled": enabled}
    settings = {name: value for name, value in given.items() if value is not None}
    if scope is not None:
        settings["for_all"] = _SCOPES[scope]
    if isinstance(expires, timedelta):
        settings["expires_after"] = f"{expires.total_seconds()} seconds"
    elif expires is NONE:
        settings["expires_after"] = None
    if not settings:
        raise click.UsageError("Give --needed, --scope, --expires, --on or --off.")
    with operator(database_url, rule, dry_run=dry_run) as database:
        (found,) = database.ask("set_suppression_rule", rule=rule, settings=Jsonb(settings))
    click.echo(_sentence(found))


@click.command("reset-rule")
@_rule_argument
@dry_run_option
@database_url_option
def reset_rule(*, rule: str, dry_run: bool, database_url: str | None) -> None:
    """Give a rule the values again that it has in a new database.

    \b
    Example:
      mailgres suppressions reset-rule soft_bounces
    """
    with operator(database_url, rule, dry_run=dry_run) as database:
        (found,) = database.ask("reset_suppression_rule", rule=rule)
    click.echo(_sentence(found))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    what = " ".join(filter(None, (one["kind"], one["event"])))
    return (
        *(one["name"], what, str(one["needed"]), _scope(one), _expiry(one)),
        "on" if one["enabled"] else "off",
        ", ".join(one["except_reasons"]) or "-",
    )


def _sentence(one: dict[str, Any]) -> str:
    if not one["enabled"]:
        return f"{one['name']}: off"
    emails = f"{one['needed']} email{'' if one['needed'] == 1 else 's'}"
    return f"{one['name']}: after {emails}, for {_scope(one)}, expires: {_expiry(one)}"


def _scope(one: dict[str, Any]) -> str:
    return "all tenants" if one["for_all"] else "the tenant"


def _expiry(one: dict[str, Any]) -> str:
    seconds = one["expires_after"]
    return _EXPIRY.show(None if seconds is None else timedelta(seconds=seconds))
