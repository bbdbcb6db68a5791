"""`mailgres retry`: one email, or all that a filter leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.bulk_actions import RETRY, ids_argument, run_action
from mailgres.cli.support.filters import filter_options
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.options import database_url as database_url_option

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.bulk_actions import BulkAction
    from mailgres.cli.support.filters import Filter


@click.command()
@ids_argument
@click.option("--all-failed", is_flag=True, help="All that are dead, or those the filter leaves.")
@filter_options()
@click.option(
    "--accept-duplicates",
    is_flag=True,
    help="Also those that may have arrived and that no key protects from arriving twice.",
)
@with_run_options
@database_url_option
def retry(
    *,
    ids: tuple[UUID, ...],
    all_failed: bool,
    chosen: Filter,
    accept_duplicates: bool,
    run_options: RunOptions,
    database_url: str | None,
    action: BulkAction = RETRY,
) -> None:
    """Put dead emails back to be sent now, with all their retries: those named, or by a filter.

    A filter is about dead emails unless --status names others (cancelled, pending). It shows how
    many there are and asks; workers may run meanwhile. An email that may have arrived is sent again
    under its key while that protects it from arriving twice, and after that only with
    --accept-duplicates.

    Exits with 1 if an email that was named could not be retried, with 130 after Ctrl-C.

    \b
    Examples:
      mailgres retry 0193a1b2-…
      mailgres retry --template welcome_user --error-code 550 --since 24h
      mailgres retry --all-failed --dry-run
      mailgres retry --tenant acme --yes --json
    """
    parameters = {"accept_duplicates": accept_duplicates}
    if all_failed and set(chosen.status) - {"failed"}:
        raise click.UsageError("--all-failed is about dead emails: leave out --status.")
    run_action(
        action, ids, chosen, run_options, database_url, everything=all_failed, parameters=parameters
    )
