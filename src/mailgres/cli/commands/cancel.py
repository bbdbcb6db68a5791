"""`mailgres cancel`: one email, or all that a filter leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.bulk_actions import CANCEL, ids_argument, run_action
from mailgres.cli.support.filters import filter_options
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.options import database_url as database_url_option

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.filters import Filter


@click.command()
@ids_argument
@click.option("--all", "everything", is_flag=True, help="Everything that waits.")
@filter_options()
@click.option("--because", metavar="TEXT", help="Why, for the log.")
@with_run_options
@database_url_option
def cancel(
    *,
    ids: tuple[UUID, ...],
    everything: bool,
    chosen: Filter,
    because: str | None,
    run_options: RunOptions,
    database_url: str | None,
) -> None:
    """Cancel emails that are not sent yet: those named, or by a filter.

    A filter is about waiting emails unless --status names others (failed, sending). What is on its
    way, or may have arrived, is left alone. `mailgres retry` takes it back.

    Exits with 1 if an email that was named could not be cancelled, with 130 after Ctrl-C.

    \b
    Examples:
      mailgres cancel 0193a1b2-… --because "wrong price"
      mailgres cancel --template newsletter --tenant acme
      mailgres cancel --all --dry-run
    """
    parameters = {"because": because}
    run_action(
        CANCEL, ids, chosen, run_options, database_url, everything=everything, parameters=parameters
    )
