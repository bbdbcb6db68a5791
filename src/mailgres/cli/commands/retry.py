"""`mailgres retry`: emails by id or by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.bulk_actions import RETRY, run_action
from mailgres.cli.support.filters import filter_options
from mailgres.cli.support.ids import ids_argument
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.options import database_url as database_url_option

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.bulk_actions import BulkAction
    from mailgres.cli.support.filters import Filter
    from mailgres.cli.support.ids import Prefix


@click.command()
@ids_argument
@click.option("--all-failed", is_flag=True, help="All dead emails, or all that match the filter.")
@filter_options()
@click.option(
    "--accept-duplicates",
    is_flag=True,
    help="Also retry uncertain emails without a valid key, which may be delivered twice.",
)
@with_run_options
@database_url_option
def retry(
    *,
    ids: tuple[UUID | Prefix, ...],
    all_failed: bool,
    chosen: Filter,
    accept_duplicates: bool,
    run_options: RunOptions,
    database_url: str | None,
    action: BulkAction = RETRY,
) -> None:
    """Send dead emails again now, with all their retries, by id or by filter.

    A filter selects dead emails unless --status names others (cancelled, pending). The command
    shows how many match and asks; workers may run meanwhile. An uncertain email is sent again with
    its idempotency key while the provider still knows the key, and after that only with
    --accept-duplicates.

    Exits with 1 if an email given by id could not be retried, and with 130 after Ctrl-C.

    \b
    Examples:
      mailgres retry 0193a1b2-4f3d 0193a1b2-51c0
      mailgres retry --template welcome_user --error-code 550 --died-since 24h
      mailgres retry --all-failed --dry-run
      mailgres retry --tenant acme --yes --json
    """
    parameters = {"accept_duplicates": accept_duplicates}
    if all_failed and set(chosen.status) - {"failed"}:
        raise click.UsageError("--all-failed selects dead emails: leave out --status.")
    run_action(
        action, ids, chosen, run_options, database_url, everything=all_failed, parameters=parameters
    )
