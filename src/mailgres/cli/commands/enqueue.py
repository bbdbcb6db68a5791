"""`mailgres enqueue`: one email, or all emails of a file."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support import enqueue_file
from mailgres.cli.support.completion import names_of
from mailgres.cli.support.files import CSV, JSON_LINES, STANDARD
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json, count, moment, when
from mailgres.cli.support.payload import read_payload
from mailgres.errors import RequestRefused, UnknownTemplate
from mailgres.values.kinds import BadValue, Duration, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = Duration("1s", "3650d")
_PLACE = " (element 0 of the array, counting from 0)"  # meaningless for a single email


def future_time(given: str) -> datetime:
    """Read a future time: a duration (`2h`, `1d`), or ISO 8601 in the user's time zone."""
    now = datetime.now().astimezone()
    try:
        return now + _LENGTH.parse(given)
    except (BadValue, OverflowError):
        found = when(given, "a duration (30m, 2h, 1d) or a time such as 2027-01-31T09:00")
    if found < now - timedelta(minutes=1):
        raise click.BadParameter("it is in the past.")
    return found


def _fields(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for the fields of an email, named as in enqueue_email."""
    for option in reversed(
        (
            click.option("--payload", metavar="JSON", help="JSON, @FILE or - (standard input)."),
            click.option(
                "--also-to",
                metavar="ADDRESS",
                multiple=True,
                help="A further To address of the same message; may be repeated.",
            ),
            click.option(
                "--schedule",
                "scheduled_for",
                metavar="TIME",
                type=future_time,
                help="Send it not before this time: 2h, 1d, or 2027-01-31T09:00.",
            ),
            click.option(
                "--expires",
                "expires_at",
                metavar="TIME",
                type=future_time,
                help="Do not send it after this time.",
            ),
            click.option("--priority", type=click.IntRange(1, 9), help="1 (urgent) to 9 (bulk)."),
            click.option(
                "--tenant",
                "tenant_id",
                metavar="NAME",
                shell_complete=names_of("tenants"),
                help="The tenant of the email.",
            ),
            click.option(
                "--idempotency-key",
                metavar="KEY",
                help="A key enqueues only once; each line of a file gets the key KEY:LINE.",
            ),
            click.option("--correlation-id", metavar="ID", help="An id of yours, for tracing."),
            click.option(
                "--route",
                metavar="NAME",
                shell_complete=names_of("routes"),
                help="The route of the email.",
            ),
            click.option("--policy", "retry_policy", metavar="NAME", help="The retry policy."),
            click.option(
                "--max-retries",
                type=click.IntRange(0, 100),
                help="Retries after the first attempt.",
            ),
            click.option(
                "--ignore-suppression",
                is_flag=True,
                default=None,
                help="Send it though the address is suppressed, but never after a complaint.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("template", required=False, shell_complete=names_of("templates"))
@click.argument("recipient", required=False)
@_fields
@click.option("--csv", "csv_", metavar="FILE", help="Enqueue the rows of a CSV file, or - .")
@click.option("--jsonl", metavar="FILE", help="Enqueue the objects of a JSON Lines file, or - .")
@click.option("--continue-on-error", is_flag=True, help="Skip bad lines and report them.")
@click.option(
    "--report",
    metavar="FILE",
    help="A new file for a report of bad lines.  [default: FILE.errors.jsonl]",
)
@json_option
@click.option("--dry-run", is_flag=True, help="Check everything, enqueue nothing.")
@database_url_option
def enqueue(
    *,
    template: str | None,
    recipient: str | None,
    csv_: str | None,
    jsonl: str | None,
    continue_on_error: bool,
    report: str | None,
    as_json_: bool,
    dry_run: bool,
    database_url: str | None,
    **fields: Any,  # noqa: ANN401 - what click gives
) -> None:
    """Put an email into the queue, or all emails of a file.

    A CSV file has columns named like the arguments of enqueue_email: recipient_email (or
    recipient), template_type (or template), tenant_id, priority, payload (JSON) and so on. Every
    other column is a variable of the payload. JSON Lines have the same keys; their payload is an
    object. Options are the defaults of all lines. The quote of a CSV cell such as '=1+1, which
    keeps spreadsheets from running it as a formula, is removed.

    All lines are checked before the first is enqueued, and all are enqueued or none;
    --continue-on-error skips bad lines. With --idempotency-key the same file can be enqueued again
    after an interruption without duplicates.

    \b
    Examples:
      mailgres enqueue welcome_user ana@example.com --payload '{"name": "Ana"}'
      mailgres enqueue welcome_user ana@example.com --payload @ana.json --schedule 2h
      mailgres enqueue reset_password ana@example.com --ignore-suppression
      mailgres enqueue minutes ana@example.com --also-to bea@example.com --also-to cid@example.com
      mailgres enqueue newsletter --csv readers.csv --idempotency-key november --priority 9
      mailgres enqueue --jsonl emails.jsonl.gz --continue-on-error
    """
    given = _given(fields)
    if csv_ is None and jsonl is None:
        if template is None or recipient is None:
            raise click.UsageError("Name a template and a recipient, or a file with --csv.")
        if continue_on_error or report:
            raise click.UsageError("--continue-on-error and --report are for files.")
        email = {**given, "template_type": template, "recipient_email": recipient}
        _one(email, as_json_=as_json_, dry_run=dry_run, database_url=database_url)
        return
    if recipient is not None:
        raise click.UsageError("The recipients are in the file: leave out RECIPIENT, or the file.")
    if template is not None:
        given["template_type"] = template
    source = _source(csv_, jsonl, given)
    place = _report(source, report) if continue_on_error else None
    done = enqueue_file.run(source, place, database_url=database_url, dry_run=dry_run)
    _print_result(done, as_json_=as_json_, dry_run=dry_run)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the options as fields for enqueue_emails."""
    given = {name: value for name, value in fields.items() if value is not None}
    if not given["also_to"]:
        del given["also_to"]
    if "payload" in given:
        given["payload"] = read_payload(given["payload"])
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in given.items()
    }


def _source(csv_: str | None, jsonl: str | None, given: dict[str, Any]) -> enqueue_file.Source:
    if csv_ is not None and jsonl is not None:
        raise click.UsageError("Give --csv or --jsonl, not both.")
    if csv_ is not None:
        return enqueue_file.Source(csv_, CSV, given)
    return enqueue_file.Source(jsonl or "", JSON_LINES, given)


def _report(source: enqueue_file.Source, report: str | None) -> str:
    if report is None and source.path == STANDARD:
        raise click.UsageError("Name a file for the report of bad lines with --report.")
    if report and report != STANDARD and Path(report).resolve() == Path(source.path).resolve():
        raise click.UsageError("--report names the input file: name another.")
    return report or f"{source.path}.errors.jsonl"


def _one(email: dict[str, Any], *, as_json_: bool, dry_run: bool, database_url: str | None) -> None:
    try:
        with operator(database_url, dry_run=dry_run) as database:
            (email_id,) = database.ask("enqueue_emails", emails=Jsonb([email]))
    except UnknownTemplate as error:
        with operator(database_url) as database:
            meant = suggestion(email["template_type"], database.ask("known_templates"))
        raise UnknownTemplate(
            f"There is no template {email['template_type']!r}",
            f"Did you mean {meant}? `mailgres templates list` shows all." if meant else error.hint,
        ) from None
    except RequestRefused as error:
        raise type(error)(error.message.removesuffix(_PLACE), error.hint) from None
    if as_json_:
        as_json({"id": None if dry_run else email_id})
    elif dry_run:
        click.echo("It would be enqueued. Nothing was changed: this was a dry run.")
    else:
        due = email.get("scheduled_for")
        click.echo(f"{email_id}" + (f"  to be sent at {moment(due)}" if due else ""))


def _print_result(done: enqueue_file.Done, *, as_json_: bool, dry_run: bool) -> None:
    if as_json_:
        as_json({**vars(done), "dry_run": dry_run})
        return
    verb = "Would enqueue" if dry_run else "Enqueued"
    click.echo(f"{verb} {count(done.enqueued, 'email')}.")
    if done.bad:
        click.echo(f"Skipped {count(done.bad, 'bad line')}: see {done.report}.")
