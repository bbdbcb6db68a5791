"""`mailgres reschedule`: emails by id or by filter."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.bulk_actions import RESCHEDULE, run_action
from mailgres.cli.support.filters import filter_options
from mailgres.cli.support.ids import ids_argument
from mailgres.cli.support.job import RunOptions, with_run_options
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.output import when
from mailgres.values.kinds import BadValue, Duration

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from mailgres.cli.support.filters import Filter
    from mailgres.cli.support.ids import Prefix


_LENGTH = Duration("0s", "3650d")
NOW = "now"


def _to(given: str) -> datetime | timedelta:
    """Read a future time: `now`, a duration, or ISO 8601."""
    try:
        return _LENGTH.parse("0s" if given == NOW else given)
    except BadValue:
        return when(given)


@click.command()
@ids_argument
@click.option(
    "--to",
    "to",
    type=_to,
    required=True,
    metavar="TIME",
    help="The new time: 2h, now, or 2027-01-31T09:00.",
)
@click.option("--all", "everything", is_flag=True, help="All pending emails.")
@filter_options()
@with_run_options
@database_url_option
def reschedule(
    *,
    ids: tuple[UUID | Prefix, ...],
    to: datetime | timedelta,
    everything: bool,
    chosen: Filter,
    run_options: RunOptions,
    database_url: str | None,
) -> None:
    """Send pending emails at another time, by id or by filter.

    Exits with 1 if an email given by id could not be rescheduled, and with 130 after Ctrl-C.

    \b
    Examples:
      mailgres reschedule 0193a1b2-… --to 2h
      mailgres reschedule --tenant acme --to 2027-01-31T09:00
      mailgres reschedule --template digest --to now
    """
    with operator(database_url) as database:
        length = to if isinstance(to, timedelta) else None
        (at,) = database.ask("time_of", to=None if length is not None else to, length=length)
    if at is None:
        raise click.UsageError("--to is in the past: give `now` or a future time.")
    parameters = {"to": at}
    run_action(
        RESCHEDULE,
        ids,
        chosen,
        run_options,
        database_url,
        everything=everything,
        parameters=parameters,
    )
