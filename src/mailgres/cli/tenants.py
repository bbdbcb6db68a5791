"""`mailgres tenants`: what holds for the emails of one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from psycopg.types.json import Jsonb

from mailgres.cli.ask import operator
from mailgres.cli.options import database_url as database_url_option
from mailgres.cli.show import Nothing, rate, reader
from mailgres.settings.kinds import Or, PerTime

if TYPE_CHECKING:
    from mailgres.settings.kinds import Rate

_NONE = "none"


@click.group()
def tenants() -> None:
    """Limit and lead the emails of a tenant.

    A tenant needs no registration: what is set about one that sent nothing yet holds when it does.
    """


@tenants.command()
@click.argument("tenant")
@click.argument("rate_", metavar="RATE|none", type=reader(Or(_NONE, PerTime())))
@database_url_option
def limit(*, tenant: str, rate_: Rate | Nothing, database_url: str | None) -> None:
    """Limit how many emails of a tenant leave in a time; `none` lifts the limit.

    \b
    Examples:
      mailgres tenants limit acme 100/m
      mailgres tenants limit acme none
    """
    per_second = None if isinstance(rate_, Nothing) else rate_.per_second
    with operator(database_url) as database:
        database.ask("limit_tenant", tenant=tenant, rate=per_second)
    click.echo(f"{tenant}: {'no limit' if per_second is None else rate(per_second)}")


@tenants.command()
@click.argument("tenant")
@click.argument("route", metavar="ROUTE|none")
@database_url_option
def route(*, tenant: str, route: str, database_url: str | None) -> None:
    """Choose the route of a tenant's emails that name none, nor do their templates.

    It holds for emails enqueued from now on.

    \b
    Examples:
      mailgres tenants route acme resend-acme
      mailgres tenants route acme none
    """
    _set(database_url, tenant, "route", route)


@tenants.command()
@click.argument("tenant")
@click.argument("address", metavar="ADDRESS|none")
@database_url_option
def contact(*, tenant: str, address: str, database_url: str | None) -> None:
    """Choose who is told of a tenant's dead letters.

    \b
    Example:
      mailgres tenants contact acme postmaster@acme.example.com
    """
    _set(database_url, tenant, "contact_email", address)


def _set(database_url: str | None, tenant: str, what: str, value: str) -> None:
    given = None if value == _NONE else value
    with operator(database_url, value) as database:
        database.ask("set_tenant", tenant=tenant, settings=Jsonb({what: given}))
    click.echo(f"{tenant}: {what} {given or _NONE}")
