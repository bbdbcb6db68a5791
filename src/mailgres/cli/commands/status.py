"""`mailgres status`: the state of the queue on one screen, once or live."""

from __future__ import annotations

import sys
from typing import Any

import click

from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json
from mailgres.cli.support.status_screen import lines_of

STATUS_TIMEOUT = "10s"


@click.command()
@click.option("--watch", is_flag=True, help="Refresh the screen until q or Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch refreshes.",
)
@json_option
@database_url_option
def status(*, watch: bool, interval: float, as_json_: bool, database_url: str | None) -> None:
    """Show the queue on one screen: depth, throughput, providers, workers, alerts.

    The depth is at most 15 seconds old, and its age is shown; all other figures are current. The
    last minute is the last 60 seconds. The cost does not grow with the queue.

    \b
    Examples:
      mailgres status
      mailgres status --watch
      mailgres status --json | jq '.due.emails'
    """
    if watch and as_json_:
        raise click.UsageError("Give --watch or --json, not both.")
    if watch and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise click.UsageError("--watch needs a terminal.")

    def look() -> dict[str, Any]:
        with operator(database_url, timeout=STATUS_TIMEOUT) as database:
            (found,) = database.ask("status")
            return dict(found)

    if watch:
        from mailgres.cli.support.watch import show_live  # noqa: PLC0415 - brings rich, for this alone

        look()  # so that a first failure is an ordinary error
        show_live(look, lines_of, interval)
    elif as_json_:
        as_json(look())
    else:
        for line in lines_of(look()):
            click.echo(line)
