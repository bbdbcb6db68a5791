"""`mailgres recover`: emails that may have been sent before a restore or a failover."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support.filters import past_time
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import limit_option
from mailgres.cli.support.output import as_json, count, moment
from mailgres.cli.support.tables import table, terminal_width
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mailgres.cli.support.operator import Operator

TIMEOUT = "10min"
CHUNK = 1000
CHANGED = ("hold", "key", "resend")
ACTIONS = {
    "hold": "become dead letters with the reason uncertain",
    "key": "are retried under their key, which the provider recognises",
    "resend": "are sent again: their template accepts a duplicate",
    "kept": "were uncertain already, and stay so",
    "in_progress": "are held by a worker: run this again later",
    "repeated": "were sent again since, and may have been delivered twice",
    "protected": "were sent again since under their key: delivered once",
}
RESULTS = {
    "lost": "are not in this database",
    "settled": "were sent, and are settled as sent",
    "sent": "were sent, and are known as sent",
    "in_progress": "were sent, and are held by a worker: run this again later",
    "open": "were not sent, and are in this database",
}


@click.command()
@click.option(
    "--since",
    required=True,
    metavar="TIME",
    type=past_time,
    help="The time of the restore, or of the last commit that this server has; rather too early.",
)
@click.option(
    "--until",
    metavar="TIME",
    type=past_time,
    help="When this server took over.  [default: when a worker noticed it, else now]",
)
@click.option(
    "--known",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CSV of emails that the old server or the provider knows: id, provider_message_id.",
)
@limit_option
@with_run_options
@database_url_option
def recover(
    *,
    since: datetime,
    until: datetime | None,
    known: Path | None,
    limit: int,
    run_options: RunOptions,
    database_url: str | None,
) -> None:
    """List emails that may have been sent before a restore or a failover, and make them uncertain.

    After a point-in-time restore, or a failover to an asynchronous standby, the database does not
    know what was sent since. Emails that were due before this server took over are retried only if
    a key of the provider protects them, or if their template accepts a duplicate. The others become
    dead letters. With --known, emails are first settled that were sent according to that file, and
    emails are listed that this database has lost.

    Nothing is changed with --dry-run. Quarantine the database before, so that no worker is faster.

    \b
    Examples:
      mailgres recover --since 2026-05-12T09:30 --dry-run
      mailgres recover --since 10m --known sent.csv
      mailgres recover --since 10m --dry-run --json
    """
    emails = list(_read(known)) if known else []
    with operator(database_url, timeout=TIMEOUT, dry_run=run_options.dry_run) as database:
        compared = _compare(database, emails)
        (end,) = database.ask("recovery_until", since=since, until=until)
        found = database.ask("list_recovery", since=since, until=end)
        open_ = sum(one["action"] in CHANGED for one in found)
        _agree(open_, run_options)
        if not run_options.dry_run:
            while database.ask("recover", since=since, until=end, limit=CHUNK)[0]:
                pass
    if run_options.as_json:
        as_json({"until": end, "emails": found, "known": compared})
        return
    for line in _lines(since, end, found, compared, limit):
        click.echo(line)
    if run_options.dry_run:
        click.echo("Nothing was changed: this was a dry run.")


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the emails of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if "id" not in (rows.fieldnames or ()):
            raise MailgresError(
                f"{path} has no column id",
                "Its first line names its columns: id,provider_message_id.",
            )
        for number, row in enumerate(rows, 2):
            try:
                email: dict[str, Any] = {"id": str(UUID(row["id"]))}
            except (ValueError, TypeError, AttributeError):
                raise MailgresError(
                    f"{path}, line {number}: not the id of an email", "Nothing was changed."
                ) from None
            for name in ("provider", "provider_message_id", "sent_at"):
                email[name] = row.get(name) or None
            yield email


def _compare(database: Operator, emails: list[dict[str, Any]]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(emails), CHUNK):
        found += database.ask("recover_known", emails=Jsonb(emails[start : start + CHUNK]))
    return found


def _agree(number: int, run_options: RunOptions) -> None:
    """Ask, unless there is nothing to ask."""
    if run_options.yes or run_options.dry_run or not number:
        return
    question = f"Make {count(number, 'email')} uncertain"
    if not sys.stdin.isatty():
        raise MailgresError(
            f"{question}? There is no terminal to ask at, so nothing was done",
            "Give --yes, or --dry-run to see what would be done.",
        )
    click.confirm(f"{question}?", abort=True, err=True)


def _lines(
    since: datetime, end: str, found: list[Any], compared: list[Any], limit: int
) -> Iterator[str]:
    begin = moment(since.isoformat())
    yield f"{count(len(found), 'email')} may have been sent between {begin} and {moment(end)}:"
    yield from _counts(Counter(one["action"] for one in found), ACTIONS)
    if compared:
        yield f"{count(len(compared), 'email')} of the file:"
        yield from _counts(Counter(one["result"] for one in compared), RESULTS)
    shown = [one for one in found if one["action"] not in ("protected", "key")]
    rows = [(one["action"], one["id"], one["template_type"], one["tenant_id"]) for one in shown]
    rows += [("lost", one["id"], "-", "-") for one in compared if one["result"] == "lost"]
    if rows:
        yield ""
        head = ("what", "id", "template", "tenant")
        yield from chain.from_iterable(table(head, rows[:limit], terminal_width()))
    if len(rows) > limit:
        yield f"… and {len(rows) - limit:,} more; --json prints all"


def _counts(counts: Counter[str], words: dict[str, str]) -> Iterator[str]:
    for name, what in words.items():
        if counts[name]:
            yield f"  {counts[name]:>6,}  {name:<11}  {what}"
