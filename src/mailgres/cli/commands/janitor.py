"""`mailgres janitor`: run by hand what workers run on schedule."""

from __future__ import annotations

import difflib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import psycopg

from mailgres import __version__, database, logs
from mailgres import janitor as janitors
from mailgres.cli.support.errors import CliError
from mailgres.cli.support.options import settings_options
from mailgres.cli.support.output import as_json, print_table
from mailgres.errors import DatabaseUnreachable, MailgresError, NotMigrated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.janitor import Janitor
    from mailgres.settings import Settings


@click.command()
@click.argument("name", required=False)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="All janitors except those that each worker runs for itself.",
)
@click.option("--worker", metavar="NAME", help="The worker, for the janitor `heartbeat`.")
@click.option(
    "--dry-run", is_flag=True, help="Run the first chunk, report its result and roll it back."
)
@click.option(
    "--json", "as_json_", is_flag=True, help="Print the list as JSON; reports are JSON anyway."
)
@settings_options(
    "database_url",
    "alert_email",
    "alert_webhook",
    "alert_webhook_format",
    "log_format",
    "log_level",
)
def janitor(
    *,
    settings: Settings,
    name: str | None,
    every: bool,
    worker: str | None,
    dry_run: bool,
    as_json_: bool,
) -> None:
    """Run one janitor once, run all, or list them.

    Workers run the janitors at their intervals. Running one by hand is safe: a janitor runs only
    once at a time, and `busy` means that it was running already. --all is for schedulers without a
    worker: if a janitor fails, the others still run, and the exit code is 1.

    A janitor works in chunks and commits each. --dry-run runs the first chunk and rolls it back;
    `more` then means that there is at least one more chunk. A dry run sends no notification.

    \b
    Examples:
      mailgres janitor
      mailgres janitor archive_dead_letters
      mailgres janitor delete_expired_emails --dry-run
      mailgres process --until-empty && mailgres janitor --all
    """
    if every and (name or worker):
        raise click.UsageError("--all goes with no name and no --worker.")
    if name is None and not every:
        if worker or dry_run:
            raise click.UsageError("Name a janitor; `mailgres janitor` alone lists them.")
        _list(as_json_=as_json_)
        return
    logs.start(settings)
    if every:
        _do_all(settings, dry_run=dry_run)
    elif name is not None:
        picked = _find(name)
        if not picked.locked and worker is None:
            raise click.UsageError(f"Every worker runs {name} for itself: name one with --worker.")
        _do(picked, settings, worker or "", dry_run=dry_run)


def _do_all(settings: Settings, *, dry_run: bool) -> None:
    """Run every janitor that runs once for all workers; report failures, and raise the last."""
    failed: MailgresError | None = None
    for picked in janitors.JANITORS.values():
        if picked.locked:
            try:
                _do(picked, settings, "", dry_run=dry_run)
            except (DatabaseUnreachable, NotMigrated):
                raise  # the others would fail for the same reason
            except MailgresError as error:
                if failed:
                    CliError(failed).show()
                failed = error
    if failed:
        raise failed


def _do(picked: Janitor, settings: Settings, worker: str, *, dry_run: bool) -> None:
    """Run a janitor once and report it in a line of JSON."""
    alerts = janitors.AlertTargets.of(settings)
    given = janitors.WorkerInfo(worker, __version__, alerts=alerts)
    url = settings.database_url
    do = janitors.rehearse if dry_run else janitors.run
    with explained(picked):
        done = do(picked, lambda: database.connect(url, autocommit=True), given)
    report = {"janitor": picked.name, "handled": done.handled, "busy": done.busy, "more": done.more}
    click.echo(json.dumps({**report, **({"dry_run": True} if dry_run else {})}))


def _list(*, as_json_: bool) -> None:
    if as_json_:
        as_json(
            [
                {
                    "name": one.name,
                    "purpose": one.purpose,
                    "every_seconds": one.every.total_seconds(),
                    "chunk": one.chunk,
                    "each_worker": not one.locked,
                }
                for one in janitors.JANITORS.values()
            ]
        )
        return
    print_table(
        ("janitor", "every", "purpose"),
        [
            (one.name, f"{one.every.total_seconds():g}s", one.purpose)
            for one in janitors.JANITORS.values()
        ],
    )


def _find(name: str) -> Janitor:
    if found := janitors.JANITORS.get(name):
        return found
    near = difflib.get_close_matches(name, janitors.JANITORS, n=1)
    advice = f"Did you mean {near[0]}?" if near else "`mailgres janitor` lists them."
    raise click.UsageError(f"There is no janitor {name!r}. {advice}")


@contextmanager
def explained(picked: Janitor) -> Iterator[None]:
    """Turn errors of the database into readable errors."""
    try:
        yield
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName):
        raise NotMigrated from None
    except psycopg.Error as error:
        reason = database.first_line(error)
        raise MailgresError(
            f"{picked.name} failed: {reason}", "Earlier chunks are committed; run it again."
        ) from None
