"""What `retry`, `cancel` and `reschedule` share: emails by id or by filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from mailgres.cli.support import bulk
from mailgres.cli.support.filters import check_names
from mailgres.cli.support.ids import resolve_all
from mailgres.cli.support.job import Labels, RunOptions, agree, perform
from mailgres.cli.support.keys import Keys
from mailgres.cli.support.operator import operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from mailgres.cli.support.filters import Filter
    from mailgres.cli.support.ids import Prefix


@dataclass(frozen=True)
class BulkAction:
    """An action on emails, and the statuses they may have: the first one is the default."""

    name: str
    labels: Labels
    statuses: tuple[str, ...]
    all_flag: str = "--all"
    strict: bool = False
    """Whether emails given by id must have one of the statuses, too."""


RETRY = BulkAction(
    "retry", Labels("retry", "Retried"), ("failed", "cancelled", "pending"), "--all-failed"
)
RETRY_DEAD = replace(RETRY, statuses=("failed",), strict=True)
CANCEL = BulkAction("cancel", Labels("cancel", "Cancelled"), ("pending", "failed", "sending"))
RESCHEDULE = BulkAction("reschedule", Labels("reschedule", "Rescheduled"), ("pending",))


def run_action(
    action: BulkAction,
    ids: Sequence[UUID | Prefix],
    chosen: Filter,
    run_options: RunOptions,
    database_url: str | None,
    *,
    everything: bool,
    parameters: Mapping[str, object],
) -> None:
    """Run an action on emails by id, or by filter after asking."""
    if ids and (chosen or everything):
        raise click.UsageError("Give ids or a filter, not both.")
    named = resolve_all(database_url, ids)
    if named:
        statuses = list(action.statuses) if action.strict else None
    else:
        statuses = _statuses(action, chosen, everything=everything)
    with bulk.connected(database_url) as connection:
        job = bulk.Job(
            connection,
            action.name,
            {**parameters, "statuses": statuses},
            dry_run=run_options.dry_run,
        )
        if named:
            perform(job, Keys(named), action.labels, run_options, named=True)
            return
        chosen = replace(chosen, status=tuple(statuses or ()))
        keys = bulk.choose(connection, "chosen_emails", filter=chosen.json)
        if not keys:
            with operator(database_url) as database:
                check_names(database, chosen)
        else:
            agree(connection, keys, action.labels, chosen.describe(), run_options)
        perform(job, keys, action.labels, run_options)


def _statuses(action: BulkAction, chosen: Filter, *, everything: bool) -> list[str]:
    """Return the statuses to filter by; refuse impossible and unrestricted filters."""
    statuses = list(chosen.status) or [action.statuses[0]]
    if chosen.only_dead and not chosen.status and "failed" in action.statuses:
        statuses = ["failed"]
    wrong = [status for status in statuses if status not in action.statuses]
    if wrong or (chosen.only_dead and "failed" not in statuses):
        can = " or ".join(action.statuses)
        raise click.UsageError(
            f"{'Emails that are ' + wrong[0] if wrong else 'Dead emails'} cannot be"
            f" {action.labels.done.lower()}: only those that are {can}."
        )
    if not everything and not replace(chosen, status=()):
        wide = "add a filter (such as --since 7d)"
        if statuses == list(action.statuses[:1]):
            wide += f", or give {action.all_flag}"
        raise click.UsageError(
            f"This would select every email that is {' or '.join(statuses)}: give ids, {wide}."
        )
    return statuses
