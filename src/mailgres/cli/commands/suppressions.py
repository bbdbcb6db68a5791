"""`mailgres suppressions`: addresses that get no email."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support import files
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import moment, print_rows
from mailgres.errors import InvalidAddress, MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator

ALL_TENANTS = "*"
REASONS = ("bounced", "complained", "unsubscribed", "manual")
COLUMNS = ("recipient_email", "tenant_id", "reason", "detail", "created_at")
_HEAD = ("address", "tenant", "reason", "since", "detail")
_ADDRESS = ("recipient_email", "email", "address", "line")
_CHUNK = 1000
_STATEMENT_TIMEOUT = "60s"
_ADDED = ("added", "known")
_FAULTS = {
    "address": "it has no email address",
    "reason": f"the reason is not one of {', '.join(REASONS)}",
    "tenant": "the tenant is longer than 200 characters",
    "detail": "the detail is longer than 1000 characters",
}

_tenant_option = click.option(
    "--tenant", default=ALL_TENANTS, help="Of this tenant only.  [default: of all]"
)
_reason = click.Choice(REASONS)


@click.group()
def suppressions() -> None:
    """See and change which addresses get no email.

    What is queued for a suppressed address is cancelled when its turn comes.
    """


@suppressions.command("list")
@click.option("--tenant", help="Of this tenant; * are those of all tenants.")
@click.option("--reason", type=_reason, help="With this reason.")
@click.option(
    "--containing",
    metavar="TEXT",
    help="Whose address contains this; domains beyond ASCII are kept as xn--....",
)
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
        found = database.ask("suppressions", **given, limit=limit + 1)
    empty = "No address is suppressed."
    print_rows(found, _HEAD, _row, json_=as_json_, empty=empty, limit=limit)


@suppressions.command()
@click.argument("addresses", nargs=-1, required=True)
@_tenant_option
@click.option("--reason", type=_reason, default="manual", show_default=True)
@click.option("--detail", help="A remark for the next person who looks.")
@dry_run_option
@database_url_option
def add(
    *,
    addresses: tuple[str, ...],
    tenant: str,
    reason: str,
    detail: str | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Let addresses get no more email, all of them or none.

    \b
    Examples:
      mailgres suppressions add ana@example.com --reason unsubscribed
      mailgres suppressions add ana@example.com --tenant acme --detail "asked by phone"
    """
    entries = [
        {"recipient_email": address, "tenant_id": tenant, "reason": reason, "detail": detail}
        for address in addresses
    ]
    with operator(database_url, dry_run=dry_run) as database:
        reported = database.ask("suppress", entries=Jsonb(entries))
        for one, address in zip(reported, addresses, strict=True):
            if one["outcome"] not in _ADDED:
                if one["outcome"] == "address":
                    raise InvalidAddress(f"{address!r} is not an email address")
                raise MailgresError(_FAULTS[one["outcome"]].capitalize(), "Nothing was changed.")
    click.echo(_summary(Counter(one["outcome"] for one in reported)))


@suppressions.command()
@click.argument("addresses", nargs=-1, required=True)
@_tenant_option
@dry_run_option
@database_url_option
def remove(
    *, addresses: tuple[str, ...], tenant: str, dry_run: bool, database_url: str | None
) -> None:
    """Let addresses get email again, all of them or none.

    Without --tenant, what forbids it to all tenants is removed; what one tenant forbade itself
    stays.

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
                f"Nothing was changed. Look with `mailgres suppressions list --containing"
                f" {missing[0]}`.",
            )
    click.echo(f"{len(removed)} removed.")


@suppressions.command("import")
@click.argument("file")
@_tenant_option
@click.option("--reason", type=_reason, default="manual", help="Where the file names none.")
@click.option("--skip-invalid", is_flag=True, help="Leave out lines that are not valid.")
@dry_run_option
@database_url_option
def import_(
    *,
    file: str,
    tenant: str,
    reason: str,
    skip_invalid: bool,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Suppress the addresses in FILE, all of them or none; - is standard input, one on a line.

    FILE is .txt (an address on each line), .csv with a header or .jsonl, also with .gz. In CSV and
    JSON Lines the columns are recipient_email (or email, address), and optionally tenant_id,
    reason and detail; others are passed over.

    \b
    Examples:
      mailgres suppressions import bounces.csv --reason bounced
      mailgres suppressions import old-list.txt.gz --tenant acme --dry-run
    """
    kind = files.kind_of(file, files.LINES, files.CSV, files.JSON_LINES)
    entries = (
        (line, _entry(record, tenant, reason, file, line))
        for line, record in files.read(file, kind)
    )
    with operator(database_url, timeout=_STATEMENT_TIMEOUT, dry_run=dry_run) as database:
        reported = _import(database, entries, None if skip_invalid else file)
    click.echo(_summary(reported))


@suppressions.command("export")
@click.argument("file")
@click.option("--tenant", help="Of this tenant; * are those of all tenants.")
@click.option("--reason", type=_reason, help="With this reason.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@database_url_option
def export(
    *,
    file: str,
    tenant: str | None,
    reason: str | None,
    force: bool,
    database_url: str | None,
) -> None:
    """Write suppressed addresses to FILE: .csv or .jsonl, also with .gz; - prints CSV.

    Only its owner can read FILE, and it appears when all is written. `import` takes it back. In
    CSV, a cell that a spreadsheet would run as a formula begins with a quote ('=…), which `import`
    drops.

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
        given = {"tenant": tenant, "reason": reason, "containing": None, "limit": None}
        for one in database.stream("suppressions", **given):
            put({name: one[name] for name in COLUMNS})
            count += 1
    if file != files.STANDARD:
        click.echo(f"{count} are in {file}.")


def _import(
    database: Operator, entries: Iterator[tuple[int, dict[str, Any]]], file: str | None
) -> Counter[str]:
    """Suppress in chunks; `file`: a line of it that is not valid ends it all."""
    reported: Counter[str] = Counter()
    while chunk := list(islice(entries, _CHUNK)):
        found = database.ask("suppress", entries=Jsonb([entry for _, entry in chunk]))
        for (line, _), one in zip(chunk, found, strict=True):
            if file and one["outcome"] not in _ADDED:
                raise files.broken(file, line, _FAULTS[one["outcome"]])
            reported[one["outcome"] if one["outcome"] in _ADDED else "invalid"] += 1
    return reported


def _entry(
    record: dict[str, Any], tenant: str, reason: str, file: str, line: int
) -> dict[str, Any]:
    address = next((record[name] for name in _ADDRESS if name in record), None)
    if address is None:
        raise files.broken(file, line, "there is no column recipient_email")
    return {
        "recipient_email": str(address).strip().replace("\0", ""),
        "tenant_id": record.get("tenant_id") or tenant,
        "reason": record.get("reason") or reason,
        "detail": record.get("detail"),
    }


def _summary(reported: Counter[str]) -> str:
    words = {"added": "added", "known": "known before", "invalid": "not valid"}
    return (
        ", ".join(f"{reported[key]} {word}" for key, word in words.items() if reported[key])
        or "0 added"
    )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    tenant = "all" if one["tenant_id"] == ALL_TENANTS else one["tenant_id"]
    detail = one["detail"] or "-"
    return one["recipient_email"], tenant, one["reason"], moment(one["created_at"]), detail
