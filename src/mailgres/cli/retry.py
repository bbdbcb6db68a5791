"""`mailgres retry`, `cancel` and `reschedule`: one email, or all that a filter leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from mailgres.cli import bulk
from mailgres.cli.ask import operator
from mailgres.cli.filters import check_names, filter_options
from mailgres.cli.job import Manner, Words, agree, manner_options, perform
from mailgres.cli.keys import Keys
from mailgres.cli.options import database_url as database_url_option
from mailgres.cli.show import when
from mailgres.settings.kinds import BadValue, Duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from mailgres.cli.filters import Filter

_LENGTH = Duration("0s", "3650d")
NOW = "now"


@dataclass(frozen=True)
class Order:
    """What is done to emails, and in which states they can be: the first unless one is named."""

    name: str
    words: Words
    statuses: tuple[str, ...]


RETRY = Order("retry", Words("retry", "Retried"), ("failed", "cancelled", "pending"))
CANCEL = Order("cancel", Words("cancel", "Cancelled"), ("pending", "failed", "sending"))
RESCHEDULE = Order("reschedule", Words("reschedule", "Rescheduled"), ("pending",))

_ids = click.argument("ids", metavar="[ID]…", nargs=-1, type=click.UUID)


@click.command()
@_ids
@click.option("--all-failed", is_flag=True, help="All that are dead, or those the filter leaves.")
@filter_options()
@click.option(
    "--accept-duplicates",
    is_flag=True,
    help="Also those that may have arrived and that no key protects from arriving twice.",
)
@manner_options
@database_url_option
def retry(
    *,
    ids: tuple[UUID, ...],
    all_failed: bool,
    chosen: Filter,
    accept_duplicates: bool,
    manner: Manner,
    database_url: str | None,
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
    order = {"accept_duplicates": accept_duplicates}
    if all_failed and set(chosen.status) - {"failed"}:
        raise click.UsageError("--all-failed is about dead emails: leave out --status.")
    _run(RETRY, ids, chosen, manner, database_url, everything=all_failed, parameters=order)


@click.command()
@_ids
@click.option("--all", "everything", is_flag=True, help="Everything that waits.")
@filter_options()
@click.option("--because", metavar="TEXT", help="Why, for the log.")
@manner_options
@database_url_option
def cancel(
    *,
    ids: tuple[UUID, ...],
    everything: bool,
    chosen: Filter,
    because: str | None,
    manner: Manner,
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
    order = {"because": because}
    _run(CANCEL, ids, chosen, manner, database_url, everything=everything, parameters=order)


def _to(given: str) -> datetime | timedelta:
    """Read a time to come: `now`, in so long, or ISO 8601."""
    try:
        return _LENGTH.parse("0s" if given == NOW else given)
    except BadValue:
        return when(given)


@click.command()
@_ids
@click.option("--to", "to", type=_to, required=True, metavar="TIME", help="2h, now or a time.")
@click.option("--all", "everything", is_flag=True, help="Everything that waits.")
@filter_options()
@manner_options
@database_url_option
def reschedule(
    *,
    ids: tuple[UUID, ...],
    to: datetime | timedelta,
    everything: bool,
    chosen: Filter,
    manner: Manner,
    database_url: str | None,
) -> None:
    """Let waiting emails be sent at another time: those named, or by a filter.

    Exits with 1 if an email that was named could not be rescheduled, with 130 after Ctrl-C.

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
        raise click.UsageError("--to is in the past: give `now`, or a time to come.")
    order = {"to": at}
    _run(RESCHEDULE, ids, chosen, manner, database_url, everything=everything, parameters=order)


def _run(
    order: Order,
    ids: Sequence[UUID],
    chosen: Filter,
    manner: Manner,
    database_url: str | None,
    *,
    everything: bool,
    parameters: Mapping[str, object],
) -> None:
    """Do it to the emails named, or to those of the filter after asking."""
    if ids and (chosen or everything):
        raise click.UsageError("Name emails or give a filter, not both.")
    statuses = None if ids else _statuses(order, chosen, everything=everything)
    with bulk.connected(database_url) as connection:
        job = bulk.Job(
            connection, order.name, {**parameters, "statuses": statuses}, dry_run=manner.dry_run
        )
        if ids:
            perform(job, Keys(sorted(set(ids))), order.words, manner, named=True)
            return
        chosen = replace(chosen, status=tuple(statuses or ()))
        keys = bulk.choose(connection, "chosen_emails", filter=chosen.json)
        if not keys:
            with operator(database_url) as database:
                check_names(database, chosen)
        else:
            agree(connection, keys, order.words, chosen.describe(), manner)
        perform(job, keys, order.words, manner)


def _statuses(order: Order, chosen: Filter, *, everything: bool) -> list[str]:
    """In which states emails are looked for; refuses what cannot be, or be meant."""
    statuses = list(chosen.status) or [order.statuses[0]]
    if chosen.dead_reason and not chosen.status and "failed" in order.statuses:
        statuses = ["failed"]
    wrong = [status for status in statuses if status not in order.statuses]
    if wrong or (chosen.dead_reason and "failed" not in statuses):
        can = " or ".join(order.statuses)
        raise click.UsageError(
            f"{'Emails that are ' + wrong[0] if wrong else 'Dead emails'} cannot be"
            f" {order.words.done.lower()}: only those that are {can}."
        )
    if not everything and not replace(chosen, status=()):
        wide = "narrow it with a filter (such as --since 7d)"
        if order is not RETRY:
            wide += ", or give --all"
        elif statuses == ["failed"]:
            wide += ", or give --all-failed"
        raise click.UsageError(
            f"That would be every email that is {' or '.join(statuses)}: name emails, {wide}."
        )
    return statuses
