"""`mailgres senders`: which senders applications may set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import print_rows, time_cell
from mailgres.errors import OrderRefused

if TYPE_CHECKING:
    from mailgres.cli.support.operator import Operator

DEFAULT_LIST = "*"

_tenant_option = click.option(
    "--tenant",
    default=DEFAULT_LIST,
    shell_complete=names_of("tenants"),
    help="The list of this tenant.  [default: the list of tenants without one]",
)


@click.group(cls=Group)
def senders() -> None:
    """Choose which senders (from_email) applications may set.

    An entry is a domain (example.com: not its subdomains), all subdomains of one (*.example.com)
    or one address. A tenant with a list of its own uses only that list; the others share the
    default list. Without a list, any sender is accepted. Senders of templates, tenants and the
    worker's settings are not checked.
    """


@senders.command("list")
@click.option(
    "--tenant",
    shell_complete=names_of("tenants"),
    help="The list of this tenant; * is the default list.",
)
@json_option
@database_url_option
def list_(*, tenant: str | None, as_json_: bool, database_url: str | None) -> None:
    """List the allowed senders.

    \b
    Examples:
      mailgres senders list
      mailgres senders list --tenant acme --json
    """
    with operator(database_url) as database:
        found = database.ask("senders", tenant=tenant)
    empty = "No list: any sender is accepted."
    print_rows(found, ("tenant", "sender", "since"), _row, json_=as_json_, empty=empty)


@senders.command()
@click.argument("allowed", metavar="SENDER...", nargs=-1, required=True)
@_tenant_option
@dry_run_option
@database_url_option
def allow(
    *, allowed: tuple[str, ...], tenant: str, dry_run: bool, database_url: str | None
) -> None:
    """Allow senders: domains or addresses, all of them or none.

    From the first entry of a list on, senders that are not on the list are refused.

    \b
    Examples:
      mailgres senders allow example.com
      mailgres senders allow acme.example.com news@example.org --tenant acme
    """
    with operator(database_url, dry_run=dry_run) as database:
        new = [one for one in allowed if database.ask("allow_sender", tenant=tenant, sender=one)[0]]
    click.echo(f"{_whose(tenant)}: {len(new)} added, {len(allowed) - len(new)} known before")


@senders.command()
@click.argument("disallowed", metavar="SENDER...", nargs=-1, required=True)
@_tenant_option
@dry_run_option
@database_url_option
def disallow(
    *, disallowed: tuple[str, ...], tenant: str, dry_run: bool, database_url: str | None
) -> None:
    """Remove senders from a list, all of them or none.

    Emails in the queue keep their sender.

    \b
    Example:
      mailgres senders disallow news@example.org --tenant acme
    """
    with operator(database_url, dry_run=dry_run) as database:
        for one in disallowed:
            if not database.ask("disallow_sender", tenant=tenant, sender=one)[0]:
                raise OrderRefused(
                    f"{one!r} is not on the list of {_whose(tenant)}",
                    "Nothing was changed. `mailgres senders list` shows all.",
                )
        left = _left(database, tenant)
    click.echo(f"{_whose(tenant)}: {len(disallowed)} removed; {left}")


def _left(database: Operator, tenant: str) -> str:
    """Describe which list applies now: an empty list counts as no list."""
    if own := len(database.ask("senders", tenant=tenant)):
        return f"{own} left"
    if tenant != DEFAULT_LIST and database.ask("senders", tenant=DEFAULT_LIST):
        return "the list is empty, so the default list applies"
    return "the list is empty, so any sender is accepted"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return _whose(one["tenant_id"]), one["sender"], time_cell(one["allowed_at"])


def _whose(tenant: str) -> str:
    return "default" if tenant == DEFAULT_LIST else tenant
