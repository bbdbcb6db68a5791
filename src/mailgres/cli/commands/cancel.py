"""`mailgres cancel`: emails by id or by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.bulk_actions import CANCEL, run_action
from mailgres.cli.support.filters import filter_options
from mailgres.cli.support.ids import ids_argument
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.options import database_url as database_url_option

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.filters import Filter
    from mailgres.cli.support.ids import Prefix


@click.command()
@ids_argument
@click.option("--all", "everything", is_flag=True, help="All pending emails.")
@filter_options()
@click.option("--because", metavar="TEXT", help="The reason, for the log.")
@with_run_options
@database_url_option
def cancel(
    *,
    ids: tuple[UUID | Prefix, ...],
    everything: bool,
    chosen: Filter,
    because: str | None,
    run_options: RunOptions,
    database_url: str | None,
) -> None:
    """Cancel emails that were not sent yet, by id or by filter.

    A filter selects pending emails unless --status names others (failed, sending). Emails that are
    being sent, or whose outcome is uncertain, are skipped. `mailgres retry` undoes a cancel.

    Exits with 1 if an email given by id could not be cancelled, and with 130 after Ctrl-C.

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
