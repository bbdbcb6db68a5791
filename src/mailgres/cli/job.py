"""How a long job speaks with a person: shows what it is about, asks, shows the way, reports."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli import bulk
from mailgres.cli.show import as_json, moment, table
from mailgres.errors import MailgresError, MayDeliverTwice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from mailgres.cli.keys import Keys

_SAMPLE = 5
_HEAD = ("id", "enqueued", "status", "template", "recipient", "tenant", "fault")
_HINTS = {
    MayDeliverTwice.sqlstate: "--accept-duplicates sends them again though they may arrive twice."
}


@dataclass(frozen=True)
class Words:
    """What a job does, in words: `retry`, `Retried`, `emails`."""

    verb: str
    done: str
    what: str = "emails"

    def count(self, number: int) -> str:
        """So many of them."""
        return f"{number:,} {self.what.removesuffix('s') if number == 1 else self.what}"


@dataclass(frozen=True)
class Manner:
    """How a job is to be done: the options that all of them have."""

    yes: bool
    dry_run: bool
    as_json: bool


def manner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a long job, and call it with `manner`."""

    def with_manner(*, yes: bool, dry_run: bool, as_json_: bool, **given: Any) -> Any:  # noqa: ANN401 - what click gives
        return command(manner=Manner(yes, dry_run, as_json_), **given)

    with_manner.__doc__, with_manner.__name__ = command.__doc__, command.__name__
    with_manner.__dict__.update(vars(command))
    for option in (
        click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--dry-run", is_flag=True, help="Say what would come of it, and change nothing."
        ),
        click.option("--yes", "-y", is_flag=True, help="Do not ask first."),
    ):
        with_manner = option(with_manner)
    return with_manner


def agree(
    connection: psycopg.Connection[Any], keys: Keys, words: Words, about: str, manner: Manner
) -> None:
    """Show how many there are and a few of them, and ask; who says no ends the command."""
    if manner.yes or manner.dry_run:
        return
    question = f"{words.verb.capitalize()} {words.count(len(keys))}"
    if not sys.stdin.isatty():
        raise MailgresError(
            f"{question}? There is no terminal to ask at, so nothing was done",
            "Give --yes, or see with --dry-run what would be done.",
        )
    click.echo(f"{words.count(len(keys))}: {about}", err=True)
    found = bulk.ask(connection, "sample", ids=list(islice(keys.ids(), _SAMPLE)))
    for line in table(_HEAD, map(_row, found)) if found else ():
        click.echo(f"  {line}", err=True)
    if len(keys) > len(found) > 0:
        click.echo(f"  … and {len(keys) - len(found):,} more", err=True)
    click.confirm(f"{question}?", abort=True, err=True)


def perform(
    job: bulk.Job, keys: Keys, words: Words, manner: Manner, *, named: bool = False
) -> None:
    """Do it and say what came of it.

    `named`: each was named, so that one which was left alone is a failure.
    """
    with _progress(len(keys), words) as progress:
        report = job.run(keys, progress)
    if manner.as_json:
        as_json(_told(report, words, manner))
    else:
        for line in _lines(report, words, manner):
            click.echo(line)
    if report.error:
        again = f"{_so_far(report, words)} Running it again goes on with the rest."
        raise MailgresError(report.error.message, again)
    if report.ended_by:
        click.echo(
            f"Interrupted. {_so_far(report, words)} Running it again goes on with the rest.",
            err=True,
        )
        sys.exit(128 + report.ended_by)
    if named and report.skipped:
        sys.exit(1)


@contextmanager
def _progress(total: int, words: Words) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    label = f"{words.done} of {total:,}"
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update


def _so_far(report: bulk.Report, words: Words) -> str:
    return f"{words.done} {report.done:,} of {words.count(report.chosen)} before that."


def _lines(report: bulk.Report, words: Words, manner: Manner) -> Iterator[str]:
    would = "Would have " if manner.dry_run else ""
    done = words.done.lower() if would else words.done
    yield f"{would}{done} {report.done:,} of {words.count(report.chosen)}."
    for one in report.skipped.values():
        yield f"Skipped {one.count:,}: {one.message} ({one.code})"
        more = ", …" if one.count > len(one.examples) else ""
        yield f"  {', '.join(one.examples)}{more}"
        yield f"  {_HINTS.get(one.code, one.hint)}"
    if manner.dry_run:
        yield "Nothing was changed: this was a dry run."


def _told(report: bulk.Report, words: Words, manner: Manner) -> dict[str, Any]:
    return {
        "chosen": report.chosen,
        words.done.lower(): report.done,
        "skipped": [vars(one) for one in report.skipped.values()],
        "left": report.left,
        "interrupted": report.ended_by is not None,
        "dry_run": manner.dry_run,
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
