"""How a long job speaks with a person: shows what it is about, asks, shows the way, reports."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support import bulk
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json, moment, table
from mailgres.errors import MailgresError, MayDeliverTwice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from mailgres.cli.support.keys import Keys

_SAMPLE = 5
_HEAD = ("id", "enqueued", "status", "template", "recipient", "tenant", "fault")
_HINTS = {
    MayDeliverTwice.sqlstate: "--accept-duplicates sends them again though they may arrive twice."
}


@dataclass(frozen=True)
class Labels:
    """What a job does, in words: `retry`, `Retried`, `emails`."""

    verb: str
    done: str
    what: str = "emails"

    def count(self, number: int) -> str:
        """So many of them."""
        return f"{number:,} {self.what.removesuffix('s') if number == 1 else self.what}"


@dataclass(frozen=True)
class RunOptions:
    """How a job is to be done: the options that all of them have."""

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
            "--dry-run", is_flag=True, help="Say what would come of it, and change nothing."
        ),
        click.option("--yes", "-y", is_flag=True, help="Do not ask first."),
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
    """Show how many there are and a few of them, and ask; who says no ends the command."""
    if run_options.yes or run_options.dry_run:
        return
    question = f"{labels.verb.capitalize()} {labels.count(len(keys))}"
    if not sys.stdin.isatty():
        raise MailgresError(
            f"{question}? There is no terminal to ask at, so nothing was done",
            "Give --yes, or see with --dry-run what would be done.",
        )
    click.echo(f"{labels.count(len(keys))}: {about}", err=True)
    found = bulk.ask(connection, "sample", ids=list(islice(keys.ids(), _SAMPLE)))
    for line in table(_HEAD, map(_row, found)) if found else ():
        click.echo(f"  {line}", err=True)
    if len(keys) > len(found) > 0:
        click.echo(f"  … and {len(keys) - len(found):,} more", err=True)
    click.confirm(f"{question}?", abort=True, err=True)


def perform(
    job: bulk.Job, keys: Keys, labels: Labels, run_options: RunOptions, *, named: bool = False
) -> None:
    """Do it and say what came of it.

    `named`: each was named, so that one which was left alone is a failure.
    """
    with _progress(len(keys), labels) as progress:
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


@contextmanager
def _progress(total: int, labels: Labels) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    label = f"{labels.done} of {total:,}"
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update


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
        moment(email["created_at"]),
        email["status"],
        email["template_type"],
        email["recipient_email"],
        email["tenant_id"],
        ": ".join(filter(None, (email["dead_reason"], email["error_code"]))) or "-",
    )
