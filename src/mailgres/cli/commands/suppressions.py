"""`mailgres suppressions`: addresses that receive no email."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.commands.enqueue import future_time
from mailgres.cli.support import files
from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.filters import past_time
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import as_json, print_rows, time_cell
from mailgres.cli.support.suppression_import import (
    ADDED,
    FAULTS,
    REASONS,
    of_file,
    of_provider,
    suppress_all,
)
from mailgres.cli.support.suppression_rules import reset_rule, rules, set_rule
from mailgres.cli.support.suppression_text import explained
from mailgres.cli.support.tables import Column, harmless
from mailgres.errors import InvalidAddress, MailgresError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.settings import Settings

ALL_TENANTS = "*"
COLUMNS = (
    *("recipient_email", "tenant_id", "reason", "detail", "created_at"),
    *("source", "expires_at", "note", "queue_id"),
)
_HEAD = (
    Column("address", least=24),
    Column("tenant", spare="all", below="tenant {}"),
    "reason",
    "source",
    "since",
    "expires",
    Column("detail", below="{}"),
)
_STATEMENT_TIMEOUT = "60s"
_tenant_option = click.option(
    "--tenant",
    default=ALL_TENANTS,
    shell_complete=names_of("tenants"),
    help="Only for this tenant.  [default: for all tenants]",
)
_reason = click.Choice(REASONS)
_source = click.Choice(("event", "provider", "operator", "import"))


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that choose suppressions."""
    for option in reversed(
        (
            click.option(
                "--tenant",
                shell_complete=names_of("tenants"),
                help="For this tenant; * means the entries for all tenants.",
            ),
            click.option("--reason", type=_reason, help="With this reason."),
            click.option("--source", type=_source, help="From this source."),
            click.option(
                "--containing",
                metavar="TEXT",
                help="With this text in the address; non-ASCII domains are stored as xn--....",
            ),
            click.option("--domain", metavar="DOMAIN", help="With addresses of this domain."),
            click.option(
                "--since",
                metavar="TIME",
                type=past_time,
                help="Suppressed since: 24h, 7d, or 2026-01-31T09:00.",
            ),
            click.option(
                "--until", metavar="TIME", type=past_time, help="Suppressed before this time."
            ),
        )
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def suppressions() -> None:
    """List and change the addresses that receive no email.

    Queued emails to a suppressed address are cancelled when they are claimed.
    """


for _command in (rules, set_rule, reset_rule):
    suppressions.add_command(_command)


@suppressions.command("list")
@_filter_options
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
@json_option
@database_url_option
def list_(*, limit: int, as_json_: bool, database_url: str | None, **given: object) -> None:
    """List suppressed addresses, the newest first.

    \b
    Examples:
      mailgres suppressions list
      mailgres suppressions list --containing @example.com --reason bounced
      mailgres suppressions list --json | jq -r '.[].recipient_email'
    """
    with operator(database_url) as database:
        found = database.ask("suppressions", filter=_filter(given), limit=limit + 1)
    empty = "No address is suppressed."
    print_rows(found, _HEAD, _row, json_=as_json_, empty=empty, limit=limit)


@suppressions.command()
@click.argument("addresses", nargs=-1, required=True)
@_tenant_option
@click.option("--reason", type=_reason, default="manual", show_default=True)
@click.option("--detail", help="Why, in the words of a provider; shown in the list.")
@click.option("--note", help="A remark, shown by `explain`.")
@click.option(
    "--expires",
    metavar="TIME",
    type=future_time,
    help="Until when: 30d, or 2027-01-31T09:00.  [default: it never ends]",
)
@dry_run_option
@database_url_option
def add(
    *,
    addresses: tuple[str, ...],
    tenant: str,
    reason: str,
    detail: str | None,
    note: str | None,
    expires: datetime | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Suppress addresses, all of them or none.

    \b
    Examples:
      mailgres suppressions add ana@example.com --reason unsubscribed
      mailgres suppressions add ana@example.com --tenant acme --note "asked by phone"
      mailgres suppressions add ana@example.com --expires 30d
    """
    shared = {
        "tenant_id": tenant,
        "reason": reason,
        "detail": detail,
        "note": note,
        "expires_at": expires.isoformat() if expires else None,
    }
    entries = [{"recipient_email": address, **shared} for address in addresses]
    with operator(database_url, dry_run=dry_run) as database:
        reported = database.ask("suppress", entries=Jsonb(entries))
        for one, address in zip(reported, addresses, strict=True):
            if one["outcome"] not in ADDED:
                if one["outcome"] == "address":
                    raise InvalidAddress(f"{address!r} is not an email address")
                raise MailgresError(FAULTS[one["outcome"]].capitalize(), "Nothing was changed.")
    click.echo(_summary(Counter(one["outcome"] for one in reported)))


@suppressions.command()
@click.argument("addresses", nargs=-1, required=True)
@_tenant_option
@dry_run_option
@database_url_option
def remove(
    *, addresses: tuple[str, ...], tenant: str, dry_run: bool, database_url: str | None
) -> None:
    """Remove suppressions, all of them or none.

    Without --tenant, entries for all tenants are removed; entries for one tenant stay.

    \b
    Examples:
      mailgres suppressions remove ana@example.com
      mailgres suppressions remove ana@example.com --tenant acme
    """
    with operator(database_url, dry_run=dry_run) as database:
        removed = set(database.ask("unsuppress", addresses=list(addresses), tenant=tenant))
        if missing := sorted(set(addresses) - removed):
            whose = "for all tenants" if tenant == ALL_TENANTS else f"for the tenant {tenant}"
            raise MailgresError(
                f"{missing[0]} is not suppressed {whose}",
                f"Nothing was changed. See `mailgres suppressions list --containing {missing[0]}`.",
            )
    click.echo(f"{len(removed)} removed.")


@suppressions.command("import")
@click.argument("file", required=False)
@click.option(
    "--provider",
    metavar="NAME",
    help="Read the list of this account by its API instead of FILE; Resend has one.",
)
@_tenant_option
@click.option("--reason", type=_reason, default="manual", help="The reason if the file names none.")
@click.option("--skip-invalid", is_flag=True, help="Skip invalid lines.")
@dry_run_option
@settings_options("database_url", "providers")
def import_(
    *,
    settings: Settings,
    file: str | None,
    provider: str | None,
    tenant: str,
    reason: str,
    skip_invalid: bool,
    dry_run: bool,
) -> None:
    """Suppress the addresses in FILE, all of them or none; - is standard input, one per line.

    FILE is .txt (one address per line), .csv with a header or .jsonl, also with .gz. In CSV and
    JSON Lines the columns are recipient_email (or email, address), and optionally tenant_id,
    reason, detail, note and expires_at; others are ignored.

    \b
    Examples:
      mailgres suppressions import bounces.csv --reason bounced
      mailgres suppressions import old-list.txt.gz --tenant acme --dry-run
      mailgres suppressions import --provider resend
    """
    if provider is not None and file is None:
        entries = of_provider(settings, provider, tenant)
    elif file is not None and provider is None:
        entries = of_file(file, tenant, reason)
    else:
        raise click.UsageError("Give a FILE or --provider NAME.")
    with operator(settings.database_url, timeout=_STATEMENT_TIMEOUT, dry_run=dry_run) as database:
        reported = suppress_all(database, entries, None if skip_invalid else file)
    click.echo(_summary(reported))


@suppressions.command()
@_filter_options
@dry_run_option
@database_url_option
def release(*, dry_run: bool, database_url: str | None, **given: object) -> None:
    """Remove all suppressions that match the filter, such as those of one incident.

    Give at least one condition. Complaints are only released with --reason complained.

    \b
    Examples:
      mailgres suppressions release --domain example.com --since 24h --dry-run
      mailgres suppressions release --source event --reason bounced --until 2026-01-31
    """
    with operator(database_url, timeout=_STATEMENT_TIMEOUT, dry_run=dry_run) as database:
        found = database.ask("release_suppressions", filter=_filter(given))
    for reason, count in sorted(Counter(one["reason"] for one in found).items()):
        click.echo(f"{reason}: {count}")
    click.echo(f"{len(found)} released.")


@suppressions.command()
@click.argument("address")
@json_option
@database_url_option
def explain(*, address: str, as_json_: bool, database_url: str | None) -> None:
    """Say whether and why ADDRESS is suppressed, since when, and because of which email.

    Exits with 1 if it is not suppressed.

    \b
    Examples:
      mailgres suppressions explain ana@example.com
    """
    with operator(database_url) as database:
        (found,) = database.ask("explain_address", address=address)
    if as_json_:
        as_json(found)
    else:
        for line in explained(found):
            click.echo(harmless(line))
    if not any(one["holds"] for one in found["suppressions"]):
        sys.exit(1)


@suppressions.command("export")
@click.argument("file")
@_filter_options
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@database_url_option
def export(*, file: str, force: bool, database_url: str | None, **given: object) -> None:
    """Write suppressed addresses to FILE: .csv or .jsonl, also with .gz; - prints CSV.

    Only the owner can read FILE, and it appears when it is complete. `import` can read it. In CSV,
    a cell that a spreadsheet would run as a formula starts with a quote ('=…), which `import`
    removes.

    \b
    Examples:
      mailgres suppressions export suppressed.csv
      mailgres suppressions export - | cut -d, -f1
    """
    kind = files.kind_of(file, files.CSV, files.JSON_LINES)
    count = 0
    with (
        operator(database_url, timeout=_STATEMENT_TIMEOUT) as database,
        files.written(file, force=force) as out,
    ):
        put = files.writer(kind, COLUMNS, out)
        chosen = _filter(given)
        for one in database.stream("suppressions", filter=chosen, limit=None):
            put({name: one[name] for name in COLUMNS})
            count += 1
    if file != files.STANDARD:
        are = "suppression is" if count == 1 else "suppressions are"
        click.echo(f"{count} {are} in {file}.")


def _filter(given: dict[str, object]) -> Jsonb:
    times = {name: given.pop(name) for name in ("since", "until")}
    shown = {name: one.isoformat() for name, one in times.items() if isinstance(one, datetime)}
    return Jsonb({**given, **shown})


def _summary(reported: Counter[str]) -> str:
    words = {"added": "added", "known": "known before", "invalid": "invalid"}
    return (
        ", ".join(f"{reported[key]} {word}" for key, word in words.items() if reported[key])
        or "0 added"
    )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    tenant = "all" if one["tenant_id"] == ALL_TENANTS else one["tenant_id"]
    expires = time_cell(one["expires_at"]) if one["expires_at"] else "never"
    return (
        *(one["recipient_email"], tenant, one["reason"], one["source"]),
        *(time_cell(one["created_at"]), expires, one["detail"] or one["note"] or "-"),
    )
