"""`mailgres dlq`: dead letters, in the queue and in the archive."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.commands.retry import retry
from mailgres.cli.support import bulk, dead_letter_files, files
from mailgres.cli.support.bulk_actions import RETRY_DEAD
from mailgres.cli.support.errors import Group
from mailgres.cli.support.filters import check_names, filter_options
from mailgres.cli.support.ids import id_argument, resolve, short_ids
from mailgres.cli.support.job import Labels, RunOptions, agree, perform, with_run_options
from mailgres.cli.support.keys import Keys
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option, limit_option
from mailgres.cli.support.output import as_json, count, moment, print_rows, print_table, time_cell
from mailgres.cli.support.tables import Column
from mailgres.errors import MailgresError, UnknownEmail

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.filters import Filter
    from mailgres.cli.support.ids import Prefix
    from mailgres.cli.support.operator import Operator

_PURGE = Labels("purge", "Purged", "dead letters")
_HEAD = (
    "id",
    "died",
    "reason",
    Column("code", least=12, spare="-"),
    Column("template", least=8),
    Column("tenant", least=8, spare="default"),
    Column("recipient", least=16),
    Column("attempts", below="attempts: {}"),
    Column("where", spare="queue"),
)
_STATS_HEAD = ("by", "", "in queue", "archived", "oldest", "newest")
_BY = ("code", "tenant", "template", "reason")


@click.group(cls=Group)
def dlq() -> None:
    """List, retry, export and purge dead letters.

    Dead emails stay in the queue for a week and are then moved to an archive. The commands use
    both, except `retry`, which uses only the queue. They have the filters of `mailgres retry`.
    """


_filter_options = filter_options(dead_letters=True)
_place = click.option(
    "--in", "place", type=click.Choice(("queue", "archive")), help="Only there.  [default: both]"
)


_with_attachments = click.option(
    "--with-attachments",
    is_flag=True,
    help="Also delete letters in the queue with attachments, which an export does not contain.",
)


@dlq.command("list")
@_filter_options
@_place
@limit_option
@json_option
@database_url_option
def list_(
    *,
    chosen: Filter,
    place: str | None,
    limit: int,
    as_json_: bool,
    database_url: str | None,
) -> None:
    """List dead letters, the latest first.

    \b
    Examples:
      mailgres dlq list --died-since 24h
      mailgres dlq list --tenant acme --error-code 550 --json | jq -r '.[].id'
    """
    with operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database:
        found = _ask(database, "dead_letters", chosen, place=place, limit=limit + 1)
        short = short_ids(database, found[:limit])
    print_rows(found, _HEAD, partial(_row, short), json_=as_json_, empty=_none(chosen), limit=limit)


@dlq.command()
@id_argument
@json_option
@database_url_option
def show(*, email_id: UUID | Prefix, as_json_: bool, database_url: str | None) -> None:
    """Show one dead letter: why it died, and every attempt.

    \b
    Example:
      mailgres dlq show 0193a1b2-4f3d
    """
    with operator(database_url) as database:
        id_ = resolve(database, email_id)
        found = database.ask("dead_letter", id=id_)
    if not found:
        raise UnknownEmail(f"There is no dead letter {id_}", "`mailgres dlq list` shows all.")
    if as_json_:
        as_json(found[0])
        return
    first, *others = _shown(found[0])
    print_table(first, others)
    print_table(("",) * 3, map(_log_row, found[0]["log"]), indent="  ")


@dlq.command("retry", params=list(retry.params))
@click.pass_context
def retry_(context: click.Context, /, **given: object) -> None:
    """Send dead letters again now: like `mailgres retry`, but only dead emails.

    Archived emails cannot be retried: export them and enqueue them again.

    \b
    Examples:
      mailgres dlq retry 0193a1b2-4f3d
      mailgres dlq retry --error-code 550 --tenant acme
      mailgres dlq retry --all-failed --yes
    """
    context.invoke(retry, **given, action=RETRY_DEAD)


@dlq.command()
@_filter_options
@_place
@click.option("--by", type=click.Choice(_BY), help="Only this count.  [default: all]")
@json_option
@database_url_option
def stats(
    *,
    chosen: Filter,
    place: str | None,
    by: str | None,
    as_json_: bool,
    database_url: str | None,
) -> None:
    """Count dead letters by code, reason, template and tenant.

    \b
    Examples:
      mailgres dlq stats
      mailgres dlq stats --by tenant --died-since 24h --json
    """
    with operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database:
        found = _ask(database, "dead_letter_stats", chosen, place=place)
    found = [one for one in found if by in (None, one["by"])]
    print_rows(found, _STATS_HEAD, _stats_row, json_=as_json_, empty=_none(chosen))


@dlq.command()
@click.argument("file")
@_filter_options
@_place
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--purge", "then_purge", is_flag=True, help="Then delete the exported letters.")
@_with_attachments
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Write FILE and show what --purge would delete, but delete nothing.",
)
@database_url_option
def export(
    *,
    file: str,
    chosen: Filter,
    place: str | None,
    force: bool,
    then_purge: bool,
    with_attachments: bool,
    yes: bool,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Write dead letters with all their data to FILE: .jsonl or .csv, also with .gz.

    Only the owner can read FILE, and it appears when it is complete. - prints JSON Lines. The
    content of attachments is not exported, so --purge skips letters in the queue that have
    attachments. In CSV, a cell that a spreadsheet would run as a formula starts with a quote ('=…).

    \b
    Examples:
      mailgres dlq export dead-2026-11.jsonl.gz
      mailgres dlq export acme.csv --tenant acme --in archive --purge
      mailgres dlq export - --died-since 24h | jq -r .error_message
    """
    kind = files.kind_of(file, files.JSON_LINES, files.CSV)
    run_options = RunOptions(yes, dry_run, as_json=False)
    if dry_run and not then_purge:
        raise click.UsageError("--dry-run goes with --purge: an export alone changes nothing.")
    if then_purge and file == files.STANDARD:
        raise click.UsageError("--purge needs a file: printed output may be lost.")
    if then_purge and not (yes or dry_run) and not sys.stdin.isatty():
        raise MailgresError(
            "There is no terminal to ask for confirmation of --purge, so nothing was done",
            "Give --yes, or export without --purge.",
        )
    keys = Keys() if then_purge else None
    with (
        operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database,
        files.written(file, force=force) as out,
    ):
        letters = database.stream("export_dead_letters", **_parameters(chosen), place=place)
        written = dead_letter_files.write(letters, out, kind, keys)
    if file != files.STANDARD:
        click.echo(f"{_PURGE.count(written)} {'is' if written == 1 else 'are'} in {file}.")
    if keys is not None:
        _purge(database_url, keys, file, run_options, with_attachments=with_attachments)


@dlq.command()
@click.option(
    "--exported", "file", metavar="FILE", required=True, help="The file that `export` wrote."
)
@_with_attachments
@with_run_options
@database_url_option
def purge(
    *, file: str, with_attachments: bool, run_options: RunOptions, database_url: str | None
) -> None:
    """Delete exported dead letters from the queue and from the archive.

    Nothing else is deleted: neither letters that died later nor letters that were retried and died
    again. FILE is read completely first and must not be damaged. An export does not contain
    attachments: letters in the queue with attachments are skipped, unless --with-attachments is
    given.

    \b
    Example:
      mailgres dlq purge --exported dead-2026-11.jsonl.gz
    """
    keys = dead_letter_files.read(file, files.kind_of(file, files.JSON_LINES, files.CSV))
    _purge(database_url, keys, file, run_options, with_attachments=with_attachments)


def _purge(
    database_url: str | None,
    keys: Keys,
    file: str,
    run_options: RunOptions,
    *,
    with_attachments: bool,
) -> None:
    files_too = "with their attachments" if with_attachments else "except those with attachments"
    order: dict[str, object] = {"with_attachments": with_attachments}
    with bulk.connected(database_url) as connection:
        if keys:
            agree(connection, keys, _PURGE, f"all in {file}, {files_too}", run_options)
        perform(
            bulk.Job(connection, "purge", order, dry_run=run_options.dry_run),
            keys,
            _PURGE,
            run_options,
        )


def _ask(database: Operator, query: str, chosen: Filter, **more: object) -> list[Any]:
    found = database.ask(query, **_parameters(chosen), **more)
    if not found:
        check_names(database, chosen)
    return found


def _parameters(chosen: Filter) -> dict[str, object]:
    """Return a filter as parameters: the queries look for each combination of the values."""
    return {
        name: list(dict.fromkeys(value)) if isinstance(value, tuple) else value
        for name, value in vars(chosen).items()
        if name != "status"
    }


def _none(chosen: Filter) -> str:
    """Return the message for an empty result, with or without a filter."""
    return "No dead letter matches." if chosen else "There are no dead letters."


def _log_row(entry: dict[str, Any]) -> tuple[str, ...]:
    texts = (entry["provider"], entry["error_code"], entry["error_message"])
    return moment(entry["at"]), entry["event"], "  ".join(filter(None, texts))


def _row(short: dict[str, str], one: dict[str, Any]) -> tuple[str, ...]:
    return (
        short.get(one["id"], one["id"]),
        time_cell(one["dead_at"]),
        one["dead_reason"],
        one["error_code"] or "-",
        one["template_type"],
        one["tenant_id"],
        one["recipient_email"],
        str(one["attempts"]),
        "archive" if one["archived_at"] else "queue",
    )


def _stats_row(one: dict[str, Any]) -> tuple[str, ...]:
    counts = str(one["in_queue"]), str(one["archived"])
    return one["by"], one["name"], *counts, time_cell(one["oldest"]), time_cell(one["newest"])


def _shown(one: dict[str, Any]) -> list[tuple[str, str]]:
    where, then = ("archive", "deleted") if one["archived_at"] else ("queue", "archived")
    fault = ": ".join(filter(None, (one["error_code"], one["error_message"])))
    attempts = count(one["attempts"], "attempt")
    lines = [
        ("id", one["id"]),
        ("recipient", one["recipient_email"]),
        ("template", one["template_type"]),
        ("tenant", one["tenant_id"]),
        ("enqueued", moment(one["enqueued_at"])),
        ("died", f"{moment(one['dead_at'])}, {one['dead_reason']}, after {attempts}"),
        ("fault", fault),
        ("detail", one["error_detail"] or ""),
        ("provider", one["provider"] or ""),
        ("where", f"{where}, {then} at {moment(one['expires_at'])}"),
    ]
    return [(name, value) for name, value in lines if value]
