"""`mailgres quarantine`: a copy of the database sends nothing."""

from __future__ import annotations

from typing import Any

import click

from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json, count, moment

COUNT_TIMEOUT = "60s"


@click.group(cls=Group)
def quarantine() -> None:
    """Keep a copy of the database from sending.

    A database that was restored from a dump, made from a template, or filled by logical replication
    is quarantined automatically: both it and the original would send the same emails. Nothing is
    sent until it is released; providers that only capture are used. A copy of the server's files
    (a base backup, a snapshot, a branch) looks like the original: quarantine it by hand.
    """


@quarantine.command("status")
@json_option
@database_url_option
def status_(*, as_json_: bool, database_url: str | None) -> None:
    """Show whether this database may send, and why not.

    \b
    Examples:
      mailgres quarantine status
      mailgres quarantine status --json
    """
    with operator(database_url, timeout=COUNT_TIMEOUT) as database:
        (found,) = database.ask("quarantine_state")
    if as_json_:
        as_json(found)
        return
    for line in _lines(found):
        click.echo(line)


@quarantine.command()
@click.option("--because", metavar="TEXT", help="The reason, for those who ask later.")
@dry_run_option
@database_url_option
def start(*, because: str | None, dry_run: bool, database_url: str | None) -> None:
    """Send nothing from this database until it is released. Calls in progress are finished.

    \b
    Examples:
      mailgres quarantine start
      mailgres quarantine start --because "restore of 12 May, being checked"
    """
    with operator(database_url, dry_run=dry_run) as database:
        (new,) = database.ask("quarantine", because=because)
    known = "" if new else ", as before"
    click.echo(f"Quarantined{known}: nothing is sent. `mailgres quarantine release` ends it.")


@quarantine.command()
@click.option(
    "--anywhere",
    is_flag=True,
    help="Copies of this database may send, too: for the template of test databases.",
)
@dry_run_option
@database_url_option
def release(*, anywhere: bool, dry_run: bool, database_url: str | None) -> None:
    """Let this database send. From then on it is the original, and copies of it are quarantined.

    Make sure that no worker sends from the database that it was copied from. After a restore,
    `mailgres recover` first decides about emails that may have been sent already.

    \b
    Examples:
      mailgres quarantine release
      mailgres quarantine release --anywhere
    """
    with operator(database_url, dry_run=dry_run) as database:
        (was,) = database.ask("release_quarantine", anywhere=anywhere)
    click.echo("Released: emails are sent." if was else "It was not quarantined: emails are sent.")


def _lines(found: dict[str, Any]) -> list[str]:
    waiting = f"{count(found['open_emails'], 'email is', 'emails are')} pending or being sent."
    if not found["quarantined"]:
        copies = "; so do copies of it" if found["anywhere"] else ""
        return [f"Not quarantined: this database sends{copies}.", waiting]
    since = f" since {moment(found['since'])}" if found["since"] else ""
    return [
        f"Quarantined{since}: {found['because']}.",
        waiting,
        "Nothing is sent. `mailgres quarantine release` ends it.",
    ]
