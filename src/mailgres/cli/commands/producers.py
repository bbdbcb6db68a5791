"""`mailgres producers`: database roles that enqueue for one tenant only."""

from __future__ import annotations

from typing import Any

import click

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import print_rows, time_cell
from mailgres.cli.support.tables import harmless
from mailgres.errors import OrderRefused

_HEAD = ("role", "tenant", "since", "exists")


@click.group(cls=Group)
def producers() -> None:
    """Bind database roles to one tenant each.

    A bound role enqueues for its tenant without naming it, and for no other tenant. A role that is
    not bound may enqueue for every tenant.
    """


@producers.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the roles that are bound to a tenant.

    \b
    Example:
      mailgres producers list
    """
    with operator(database_url) as database:
        found = database.ask("producers")
    empty = "No role is bound: every role may enqueue for every tenant."
    print_rows(found, _HEAD, _row, json_=as_json_, empty=empty)


@producers.command()
@click.argument("role")
@click.argument("tenant", shell_complete=names_of("tenants"))
@dry_run_option
@database_url_option
def bind(*, role: str, tenant: str, dry_run: bool, database_url: str | None) -> None:
    """Let ROLE enqueue for TENANT only.

    Name the role that logs in, or the role that PostgREST switches to. A binding does not apply to
    the members of the role.

    \b
    Example:
      mailgres producers bind acme_app acme
    """
    with operator(database_url, dry_run=dry_run) as database:
        database.ask("bind_producer", role=role, tenant=tenant)
        members = database.ask("members", role=role)
    if members:
        names = harmless(", ".join(members))
        click.echo(f"Note: roles that are members of it are not bound by this: {names}.", err=True)
    click.echo(harmless(f"{role}: enqueues for {tenant} only"))


@producers.command()
@click.argument("role")
@dry_run_option
@database_url_option
def unbind(*, role: str, dry_run: bool, database_url: str | None) -> None:
    """Let ROLE enqueue for every tenant again.

    \b
    Example:
      mailgres producers unbind acme_app
    """
    with operator(database_url, dry_run=dry_run) as database:
        (unbound,) = database.ask("unbind_producer", role=role)
        if not unbound:
            raise OrderRefused(
                f"The role {role!r} is not bound", "`mailgres producers list` shows all."
            )
    click.echo(harmless(f"{role}: enqueues for every tenant"))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    exists = "yes" if one["exists"] else "no"
    return one["role_name"], one["tenant_id"], time_cell(one["bound_at"]), exists
