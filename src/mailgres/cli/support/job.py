"""The dialogue of a long job: it shows a sample, asks, shows progress and reports."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support import bulk
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json, echo_lines, progress_bar, time_cell
from mailgres.cli.support.tables import Column, table, terminal_width
from mailgres.errors import MailgresError, MayDeliverTwice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from mailgres.cli.support.keys import Keys

_SAMPLE = 5
_HEAD = (
    "id",
    "enqueued",
    "status",
    Column("template", least=12),
    Column("recipient", least=16),
    Column("tenant", least=8, spare="default"),
    Column("fault", spare="-"),
)
_HINTS = {MayDeliverTwice.sqlstate: "--accept-duplicates sends them again, perhaps a second time."}


@dataclass(frozen=True)
class Labels:
    """The words for a job: `retry`, `Retried`, `emails`."""

    verb: str
    done: str
    what: str = "emails"

    def count(self, number: int) -> str:
        """Return a number with its noun."""
        return f"{number:,} {self.what.removesuffix('s') if number == 1 else self.what}"


@dataclass(frozen=True)
class RunOptions:
    """The options that all long jobs have."""

    yes: bool
    dry_run: bool
    as_json: bool


def with_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a long job, and call it with `run_options`."""

    def with_options(*, yes: bool, dry_run: bool, as_json_: bool, **given: Any) -> Any:  # noqa: ANN401 - what click gives
        return command(run_options=RunOptions(yes, dry_run, as_json_), **given)

    with_options.__doc__, with_options.__name__ = command.__doc__, command.__name__
    with_options.__dict__.update(vars(command))
    for option in (
        json_option,
        click.option(
            "--dry-run", is_flag=True, help="Show what would be done, and change nothing."
        ),
        click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
    ):
        with_options = option(with_options)
    return with_options


def agree(
    connection: psycopg.Connection[Any],
    keys: Keys,
    labels: Labels,
    about: str,
    run_options: RunOptions,
) -> None:
    """Show the number of emails and a sample, and ask; `no` ends the command."""
    if run_options.yes or run_options.dry_run:
        return
    question = f"{labels.verb.capitalize()} {labels.count(len(keys))}"
    if not sys.stdin.isatty():
        raise MailgresError(
            f"{question}? There is no terminal to ask at, so nothing was done",
            "Give --yes, or --dry-run to see what would be done.",
        )
    click.echo(f"{labels.count(len(keys))}: {about}", err=True)
    found = bulk.ask(connection, "sample", ids=list(islice(keys.ids(), _SAMPLE)))
    width = terminal_width()
    for block in table(_HEAD, map(_row, found), width and width - 2) if found else ():
        echo_lines([f"  {line}" for line in block], err=True)
    if len(keys) > len(found) > 0:
        click.echo(f"  … and {len(keys) - len(found):,} more", err=True)
    click.confirm(f"{question}?", abort=True, err=True)


def perform(
    job: bulk.Job, keys: Keys, labels: Labels, run_options: RunOptions, *, named: bool = False
) -> None:
    """Run a job and print its report.

    With `named`, the emails were given by id, so that a skipped email is a failure.
    """
    with progress_bar(len(keys), labels.done) as progress:
        report = job.run(keys, progress)
    if run_options.as_json:
        as_json(_report_json(report, labels, run_options))
    else:
        for line in _lines(report, labels, run_options):
            click.echo(line)
    if report.error:
        again = f"{_so_far(report, labels)} Running it again goes on with the rest."
        raise MailgresError(report.error.message, again)
    if report.ended_by:
        click.echo(
            f"Interrupted. {_so_far(report, labels)} Running it again goes on with the rest.",
            err=True,
        )
        sys.exit(128 + report.ended_by)
    if named and report.skipped:
        sys.exit(1)


def _so_far(report: bulk.Report, labels: Labels) -> str:
    return f"{labels.done} {report.done:,} of {labels.count(report.chosen)} before that."


def _lines(report: bulk.Report, labels: Labels, run_options: RunOptions) -> Iterator[str]:
    would = "Would have " if run_options.dry_run else ""
    done = labels.done.lower() if would else labels.done
    yield f"{would}{done} {report.done:,} of {labels.count(report.chosen)}."
    for one in report.skipped.values():
        yield f"Skipped {one.count:,}: {one.message} ({one.code})"
        more = ", …" if one.count > len(one.examples) else ""
        yield f"  {', '.join(one.examples)}{more}"
        yield f"  {_HINTS.get(one.code, one.hint)}"
    if run_options.dry_run:
        yield "Nothing was changed: this was a dry run."


def _report_json(report: bulk.Report, labels: Labels, run_options: RunOptions) -> dict[str, Any]:
    return {
        "chosen": report.chosen,
        labels.done.lower(): report.done,
        "skipped": [vars(one) for one in report.skipped.values()],
        "left": report.left,
        "interrupted": report.ended_by is not None,
        "dry_run": run_options.dry_run,
    }


def _row(email: dict[str, Any]) -> tuple[str, ...]:
    return (
        email["id"],
        time_cell(email["created_at"]),
        email["status"],
        email["template_type"],
        email["recipient_email"],
        email["tenant_id"],
        ": ".join(filter(None, (email["dead_reason"], email["error_code"]))) or "-",
    )
