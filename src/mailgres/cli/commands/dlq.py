"""`mailgres dlq`: dead letters, in the queue and in the archive."""

from __future__ import annotations

import functools
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support import bulk, dead_letter_files, files
from mailgres.cli.support.bulk_actions import RETRY
from mailgres.cli.support.filters import REASONS, Filter, check_names, parse_past_time
from mailgres.cli.support.job import Labels, RunOptions, agree, perform, with_run_options
from mailgres.cli.support.keys import Keys
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.output import as_json, moment, table
from mailgres.errors import MailgresError, UnknownEmail
from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

_PURGE = Labels("purge", "Purged", "dead letters")
_HEAD = ("id", "died", "reason", "code", "template", "tenant", "recipient", "tries", "where")
_BY = ("code", "tenant", "template", "reason")


@click.group()
def dlq() -> None:
    """See dead letters, retry, export and purge them.

    Dead emails stay in the queue for a week and then go to an archive; both are looked at, except
    by `retry`, which takes those in the queue.
    """


def _since(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> datetime | None:
    found = parse_past_time(context, parameter, given)
    if found and found > datetime.now().astimezone():
        raise click.BadParameter("that is in the future: nothing can match.", context, parameter)
    return found


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filter of dead letters, and call it with `chosen`, a dict."""
    names = ("tenant", "template", "code", "reason", "since", "until")

    @functools.wraps(command)
    def with_filter(**given: Any) -> Any:  # noqa: ANN401 - what click gives
        chosen = {name: given.pop(name) for name in names}
        if chosen["since"] and chosen["until"] and chosen["since"] >= chosen["until"]:
            raise click.UsageError("--since is not before --until: nothing can match.")
        return command(chosen=chosen, **given)

    for option in (
        click.option("--until", metavar="TIME", callback=parse_past_time, help="Died before then."),
        click.option(
            "--since", metavar="TIME", callback=_since, help="Died since: 24h, 2026-01-31T09:00."
        ),
        click.option("--reason", type=click.Choice(REASONS), help="Why it was given up."),
        click.option("--code", help="Of the last fault; `none`: those without a code."),
        click.option("--template", metavar="NAME", help="Of this template."),
        click.option("--tenant", metavar="NAME", help="Of this tenant."),
    ):
        with_filter = option(with_filter)
    return with_filter


_place = click.option(
    "--in", "place", type=click.Choice(("queue", "archive")), help="There only.  [default: both]"
)


_with_attachments = click.option(
    "--with-attachments",
    is_flag=True,
    help="Also delete letters in the queue that have attachments, which no export holds.",
)


@dlq.command("list")
@_filter_options
@_place
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@database_url_option
def list_(
    *,
    chosen: dict[str, Any],
    place: str | None,
    limit: int,
    as_json_: bool,
    database_url: str | None,
) -> None:
    """List dead letters, those that died last first.

    \b
    Examples:
      mailgres dlq list --since 24h
      mailgres dlq list --tenant acme --code 550 --json | jq -r '.[].id'
    """
    with operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database:
        found = database.ask("dead_letters", **chosen, place=place, limit=limit + 1)
        if not found:
            check_names(database, _names(chosen))
    if as_json_:
        as_json(found[:limit])
    elif not found:
        click.echo(_none(chosen), err=True)
    else:
        for line in table(_HEAD, map(_row, found[:limit])):
            click.echo(line)
    if len(found) > limit:
        click.echo(f"There are more than these {limit}: --limit shows more.", err=True)


@dlq.command()
@click.argument("id_", metavar="ID", type=click.UUID)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@database_url_option
def show(*, id_: UUID, as_json_: bool, database_url: str | None) -> None:
    """Show one dead letter: why it died, and every try.

    \b
    Example:
      mailgres dlq show 0193a1b2-…
    """
    with operator(database_url) as database:
        found = database.ask("dead_letter", id=id_)
    if not found:
        raise UnknownEmail(
            f"There is no dead letter {id_}", "`mailgres dlq list` shows those there are."
        )
    if as_json_:
        as_json(found[0])
        return
    for name, value in _shown(found[0]):
        click.echo(f"{name:10} {printable(value)}")
    for entry in found[0]["log"]:
        texts = (entry["event"], entry["provider"], entry["error_code"], entry["error_message"])
        click.echo(f"  {moment(entry['at'])}  {printable('  '.join(filter(None, texts)))}")


@dlq.command()
@click.argument("ids", metavar="[ID]…", nargs=-1, type=click.UUID)
@click.option("--all", "everything", is_flag=True, help="All that are in the queue.")
@_filter_options
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
    everything: bool,
    chosen: dict[str, Any],
    accept_duplicates: bool,
    run_options: RunOptions,
    database_url: str | None,
) -> None:
    """Put dead letters back to be sent now: those named, or by a filter, which asks first.

    Those in the archive are not taken back: export them and enqueue them again.

    \b
    Examples:
      mailgres dlq retry 0193a1b2-…
      mailgres dlq retry --code 550 --tenant acme
      mailgres dlq retry --all --yes
    """
    given = any(chosen.values())
    if ids and (given or everything):
        raise click.UsageError("Name dead letters or give a filter, not both.")
    if not (ids or given or everything):
        raise click.UsageError("That would be all of them: name some, filter, or give --all.")
    order = {"accept_duplicates": accept_duplicates, "statuses": ["failed"]}
    with bulk.connected(database_url) as connection:
        job = bulk.Job(connection, RETRY.name, order, dry_run=run_options.dry_run)
        if ids:
            perform(job, Keys(sorted(set(ids))), RETRY.labels, run_options, named=True)
            return
        keys = bulk.choose(connection, "chosen_dead_letters", **chosen)
        if keys:
            agree(connection, keys, RETRY.labels, _described(chosen), run_options)
        else:
            with operator(database_url) as database:
                check_names(database, _names(chosen))
        perform(job, keys, RETRY.labels, run_options)


@dlq.command()
@_filter_options
@_place
@click.option("--by", type=click.Choice(_BY), help="This count only.  [default: all]")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@database_url_option
def stats(
    *,
    chosen: dict[str, Any],
    place: str | None,
    by: str | None,
    as_json_: bool,
    database_url: str | None,
) -> None:
    """Count dead letters by code, by reason, by template and by tenant.

    \b
    Examples:
      mailgres dlq stats
      mailgres dlq stats --by tenant --since 24h --json
    """
    with operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database:
        found = database.ask("dead_letter_stats", **chosen, place=place)
    found = [one for one in found if by in (None, one["by"])]
    if as_json_:
        as_json(found)
    elif not found:
        click.echo(_none(chosen), err=True)
    else:
        rows = [
            (
                one["by"],
                one["name"],
                str(one["in_queue"]),
                str(one["archived"]),
                moment(one["oldest"]),
                moment(one["newest"]),
            )
            for one in found
        ]
        for line in table(("by", "", "in queue", "archived", "oldest", "newest"), rows):
            click.echo(line)


@dlq.command()
@click.argument("file")
@_filter_options
@_place
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--purge", "then_purge", is_flag=True, help="Then delete what is in FILE, and only that."
)
@_with_attachments
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting.")
@click.option(
    "--dry-run", is_flag=True, help="Write FILE, say what --purge would delete, delete nothing."
)
@database_url_option
def export(
    *,
    file: str,
    chosen: dict[str, Any],
    place: str | None,
    force: bool,
    then_purge: bool,
    with_attachments: bool,
    yes: bool,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Write dead letters to FILE with all that is known of them: .jsonl or .csv, also with .gz.

    Only its owner can read FILE, and it appears when all is written. - prints JSON Lines. The
    content of attachments is not in it, so --purge leaves letters in the queue that have some. In
    CSV, a cell that a spreadsheet would run as a formula begins with a quote ('=…).

    \b
    Examples:
      mailgres dlq export dead-2026-11.jsonl.gz
      mailgres dlq export acme.csv --tenant acme --in archive --purge
      mailgres dlq export - --since 24h | jq -r .error_message
    """
    kind = files.kind_of(file, files.JSON_LINES, files.CSV)
    run_options = RunOptions(yes, dry_run, as_json=False)
    if dry_run and not then_purge:
        raise click.UsageError("--dry-run is about --purge: an export alone changes nothing.")
    if then_purge and file == files.STANDARD:
        raise click.UsageError("--purge needs a file: what was printed may be lost.")
    if then_purge and not (yes or dry_run) and not sys.stdin.isatty():
        raise MailgresError(
            "Nobody can be asked before --purge, so nothing was done: there is no terminal",
            "Give --yes, or export without --purge.",
        )
    keys = Keys() if then_purge else None
    with (
        operator(database_url, timeout=bulk.SEARCH_TIMEOUT) as database,
        files.written(file, force=force) as out,
    ):
        letters = database.stream("export_dead_letters", **chosen, place=place)
        count = dead_letter_files.write(letters, out, kind, keys)
    if file != files.STANDARD:
        click.echo(f"{_PURGE.count(count)} {'is' if count == 1 else 'are'} in {file}.")
    if keys is not None:
        _purge(database_url, keys, file, run_options, with_attachments=with_attachments)


@dlq.command()
@click.option("--exported", "file", metavar="FILE", required=True, help="What `export` wrote.")
@_with_attachments
@with_run_options
@database_url_option
def purge(
    *, file: str, with_attachments: bool, run_options: RunOptions, database_url: str | None
) -> None:
    """Delete dead letters that were exported, in the queue and in the archive.

    Nothing else is deleted: not what died later, nor one that was retried and died again since.
    FILE is read to its end first, and has to be whole. Attachments are in no export: letters in
    the queue that have some are skipped, unless --with-attachments is given.

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
            agree(connection, keys, _PURGE, f"all that is in {file}, {files_too}", run_options)
        perform(
            bulk.Job(connection, "purge", order, dry_run=run_options.dry_run),
            keys,
            _PURGE,
            run_options,
        )


def _names(chosen: dict[str, Any]) -> Filter:
    """The names in a filter that may be misspelt."""
    tenant, template = chosen["tenant"], chosen["template"]
    return Filter(tenant=(tenant,) if tenant else (), template=(template,) if template else ())


def _described(chosen: dict[str, Any]) -> str:
    parts = [
        f"{name} {moment(value.isoformat()) if isinstance(value, datetime) else value}"
        for name, value in chosen.items()
        if value
    ]
    return ", ".join(parts) or "all dead letters in the queue"


def _none(chosen: dict[str, Any]) -> str:
    """What is said where nothing was found: that a filter left none, or that there are none."""
    return "There is no such dead letter." if any(chosen.values()) else "There are no dead letters."


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["id"],
        moment(one["dead_at"]),
        one["dead_reason"],
        one["error_code"] or "-",
        one["template_type"],
        one["tenant_id"],
        one["recipient_email"],
        str(one["attempts"]),
        "archive" if one["archived_at"] else "queue",
    )


def _shown(one: dict[str, Any]) -> list[tuple[str, str]]:
    where, then = ("archive", "deleted") if one["archived_at"] else ("queue", "archived")
    fault = ": ".join(filter(None, (one["error_code"], one["error_message"])))
    lines = [
        ("id", one["id"]),
        ("recipient", one["recipient_email"]),
        ("template", one["template_type"]),
        ("tenant", one["tenant_id"]),
        ("enqueued", moment(one["enqueued_at"])),
        ("died", f"{moment(one['dead_at'])}, {one['dead_reason']}, after {one['attempts']} tries"),
        ("fault", fault),
        ("detail", one["error_detail"] or ""),
        ("provider", one["provider"] or ""),
        ("where", f"{where}, {then} at {moment(one['expires_at'])}"),
    ]
    return [(name, value) for name, value in lines if value]
