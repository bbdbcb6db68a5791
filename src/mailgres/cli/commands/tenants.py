"""`mailgres tenants`: settings for the emails of one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import Nothing, moment, print_rows, rate, reader
from mailgres.errors import OrderRefused
from mailgres.values.kinds import Or, PerTime, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator
    from mailgres.values.kinds import Rate

_NONE = "none"
_HEAD = ("tenant", "weight", "limit", "route", "sent", "failed", "contact")


_tenant_argument = click.argument("tenant", shell_complete=names_of("tenants"))


@click.group(cls=Group)
def tenants() -> None:
    """List, pause, limit and configure tenants.

    A tenant needs no registration: settings can be made before its first email.
    """


@tenants.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the tenants: their settings, and the outcomes of their emails of the last 7 days.

    A tenant is listed if it has settings, pending emails, or outcomes in that time.

    \b
    Examples:
      mailgres tenants list
      mailgres tenants list --json | jq '.[] | select(.paused_at)'
    """
    with operator(database_url, timeout="60s") as database:
        found = database.ask("tenants")
    print_rows(found, _HEAD, _row, json_=as_json_, remarks=_remarks)


@tenants.command()
@_tenant_argument
@click.argument("weight", type=click.IntRange(1, 100))
@dry_run_option
@database_url_option
def weight(*, tenant: str, weight: int, dry_run: bool, database_url: str | None) -> None:
    """Set how many times three emails a tenant gets per turn while others wait (default 1).

    \b
    Example:
      mailgres tenants weight acme 5
    """
    with operator(database_url, dry_run=dry_run) as database:
        _note_unknown(database, tenant)
        database.ask("set_tenant_weight", tenant=tenant, weight=weight)
    click.echo(f"{tenant}: weight {weight}")


@tenants.command()
@_tenant_argument
@click.option("--reason", help="The reason, shown in lists.")
@dry_run_option
@database_url_option
def pause(*, tenant: str, reason: str | None, dry_run: bool, database_url: str | None) -> None:
    """Send no emails of a tenant until it is resumed. Calls in progress are finished.

    \b
    Example:
      mailgres tenants pause acme --reason "their list is being cleaned"
    """
    with operator(database_url, dry_run=dry_run) as database:
        _note_unknown(database, tenant)
        database.ask("pause_tenant", tenant=tenant, reason=reason)
    click.echo(f"{tenant}: paused; `mailgres tenants resume {tenant}` ends it")


@tenants.command()
@_tenant_argument
@dry_run_option
@database_url_option
def resume(*, tenant: str, dry_run: bool, database_url: str | None) -> None:
    """End the pause of a tenant.

    \b
    Example:
      mailgres tenants resume acme
    """
    with operator(database_url, dry_run=dry_run) as database:
        (resumed,) = database.ask("resume_tenant", tenant=tenant)
        if not resumed:
            paused = [one["tenant"] for one in database.ask("tenants") if one["paused_at"]]
            meant = suggestion(tenant, paused)
            hint = f"Did you mean {meant}?" if meant else f"Paused: {', '.join(paused) or 'none'}."
            raise OrderRefused(f"The tenant {tenant!r} is not paused", hint)
    click.echo(f"{tenant}: resumed")


@tenants.command()
@_tenant_argument
@click.argument("rate_", metavar="RATE|none", type=reader(Or(_NONE, PerTime())))
@dry_run_option
@database_url_option
def limit(*, tenant: str, rate_: Rate | Nothing, dry_run: bool, database_url: str | None) -> None:
    """Limit the rate of a tenant's emails; `none` removes the limit.

    \b
    Examples:
      mailgres tenants limit acme 100/m
      mailgres tenants limit acme none
    """
    per_second = None if isinstance(rate_, Nothing) else rate_.per_second
    with operator(database_url, dry_run=dry_run) as database:
        database.ask("limit_tenant", tenant=tenant, rate=per_second)
    click.echo(f"{tenant}: {'no limit' if per_second is None else rate(per_second)}")


@tenants.command()
@_tenant_argument
@click.argument("route", metavar="ROUTE|none", shell_complete=names_of("routes"))
@dry_run_option
@database_url_option
def route(*, tenant: str, route: str, dry_run: bool, database_url: str | None) -> None:
    """Set the route of a tenant's emails, unless the email or its template names one.

    It applies to emails that are enqueued from now on.

    \b
    Examples:
      mailgres tenants route acme resend-acme
      mailgres tenants route acme none
    """
    _set(database_url, tenant, "route", route, dry_run=dry_run)


@tenants.command()
@_tenant_argument
@click.argument("address", metavar="ADDRESS|none")
@dry_run_option
@database_url_option
def contact(*, tenant: str, address: str, dry_run: bool, database_url: str | None) -> None:
    """Set the address that is notified of a tenant's dead letters.

    \b
    Example:
      mailgres tenants contact acme postmaster@acme.example.com
    """
    _set(database_url, tenant, "contact_email", address, dry_run=dry_run)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["tenant"],
        str(one["weight"]),
        rate(one["emails_per_second"]) if one["emails_per_second"] else "-",
        one["route"] or "-",
        str(one["sent"]),
        str(one["failed"]),
        one["contact_email"] or "-",
    )


def _remarks(one: dict[str, Any]) -> Iterator[str]:
    if one["paused_at"]:
        why = f": {one['pause_reason']}" if one["pause_reason"] else ""
        yield f"paused since {moment(one['paused_at'])}{why}"


def _set(database_url: str | None, tenant: str, what: str, value: str, *, dry_run: bool) -> None:
    given = None if value == _NONE else value
    with operator(database_url, value, dry_run=dry_run) as database:
        database.ask("set_tenant", tenant=tenant, settings=Jsonb({what: given}))
    click.echo(f"{tenant}: {what} {given or _NONE}")


def _note_unknown(database: Operator, tenant: str) -> None:
    """Print a note if the tenant is unknown: its name may be misspelt."""
    known = [one["tenant"] for one in database.ask("tenants")]
    if tenant and tenant not in known:
        meant = suggestion(tenant, known)
        more = f" Did you mean {meant}?" if meant else ""
        click.echo(f"Note: the tenant {tenant!r} is not known yet.{more}", err=True)
