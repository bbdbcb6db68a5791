"""`mailgres routes`: ordered lists of providers."""

from __future__ import annotations

from typing import Any

import click

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import print_rows

_HEAD = ("route", "state", "providers", "tenants", "description")


_route_argument = click.argument("route", shell_complete=names_of("routes"))


@click.group(cls=Group)
def routes() -> None:
    """Choose which providers send, and in what order.

    The first usable provider of a route sends; the next ones are fallbacks.
    """


@routes.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the routes.

    \b
    Example:
      mailgres routes list
    """
    with operator(database_url) as database:
        found = database.ask("routes")
    print_rows(found, _HEAD, _row, json_=as_json_)


@routes.command("set")
@_route_argument
@click.argument("providers", nargs=-1, required=True, shell_complete=names_of("providers"))
@click.option("--description", help="What it is for.")
@dry_run_option
@database_url_option
def set_(
    *,
    route: str,
    providers: tuple[str, ...],
    description: str | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Create a route, or change its providers; the order is the preference.

    \b
    Examples:
      mailgres routes set acme resend-acme
      mailgres routes set bulk ses resend --description "newsletters"
    """
    with operator(database_url, *providers, dry_run=dry_run) as database:
        database.ask("set_route", route=route, providers=list(providers), description=description)
    click.echo(f"{route}: {', '.join(dict.fromkeys(providers))}")


@routes.command()
@_route_argument
@dry_run_option
@database_url_option
def pause(*, route: str, dry_run: bool, database_url: str | None) -> None:
    """Send nothing on a route until it is resumed. Calls in progress are finished.

    \b
    Example:
      mailgres routes pause bulk
    """
    with operator(database_url, route, dry_run=dry_run) as database:
        database.ask("pause_route", route=route)
    click.echo(f"{route}: paused; `mailgres routes resume {route}` ends it")


@routes.command()
@_route_argument
@dry_run_option
@database_url_option
def resume(*, route: str, dry_run: bool, database_url: str | None) -> None:
    """End the pause of a route.

    \b
    Example:
      mailgres routes resume bulk
    """
    with operator(database_url, route, dry_run=dry_run) as database:
        database.ask("resume_route", route=route)
    click.echo(f"{route}: resumed")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["route"],
        "paused" if one["paused"] else "usable" if one["usable"] else "unusable",
        ", ".join(one["providers"]) or "-",
        str(one["tenants"]),
        one["description"],
    )
