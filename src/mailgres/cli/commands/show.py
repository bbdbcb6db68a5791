"""`mailgres show`: the timeline of one email."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.ids import id_argument, resolve
from mailgres.cli.support.message import as_file, message_of, written
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import json_option, settings_options, utc
from mailgres.cli.support.output import as_json, lines, moment, print_table, status
from mailgres.cli.support.timeline import timeline
from mailgres.errors import UnknownEmail
from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.cli.support.ids import Prefix
    from mailgres.settings import Settings

HEAD = {
    "to": "recipient_email",
    "template": "template_type",
    "tenant": "tenant_id",
    "user": "user_id",
    "priority": "priority",
    "route": "route",
    "key": "idempotency_key",
    "correlation": "correlation_id",
    "policy": "retry_policy",
}
"""Lines above the timeline, and their columns."""


@click.command("show")
@id_argument
@click.option(
    "--rendered", is_flag=True, help="Also show the message as the next attempt would send it."
)
@click.option("--eml", is_flag=True, help="Print only the raw message, as a file for mail readers.")
@json_option
@utc
@settings_options("database_url", "from_email")
def show(
    *, settings: Settings, email_id: UUID | Prefix, rendered: bool, eml: bool, as_json_: bool
) -> None:
    """Show what happened to an email: enqueued, each attempt, reports of the provider.

    ID may be the first digits of an id. Archived dead letters are found, too. A message is rendered
    with the template version of the first attempt, before the first attempt with the active
    version.

    \b
    Examples:
      mailgres show 0199d2c4-1f6e-7cc3-98c4-dc0c0c07398f
      mailgres show 0199d2c4-1f6e --rendered
      mailgres show 0199d2c4-1f6e-7cc3-98c4-dc0c0c07398f --eml > mail.eml
    """
    if eml and (as_json_ or rendered):
        raise click.UsageError(
            "--eml prints only the raw message: leave out --rendered and --json."
        )
    found = _find(settings.database_url, email_id)
    message = message_of(found, settings) if rendered or eml else None
    if message is not None and eml:
        sys.stdout.buffer.write(as_file(message))
    elif as_json_:
        as_json({**found, "rendered": written(message) if message else None})
    else:
        _print(found)
        if message is not None:
            _print_message(written(message))


def _find(database_url: str | None, given: UUID | Prefix) -> dict[str, Any]:
    with operator(database_url) as database:
        email_id = resolve(database, given)
        for found in database.ask("show", id=email_id):
            return dict(found)
    raise UnknownEmail(f"There is no email {email_id}, neither in the queue nor in the archive")


def _print(found: dict[str, Any]) -> None:
    email = found["email"]
    click.echo(f"{email['id']}  {status(email['status'])}")
    rows = [(f"  {name}", str(email[column])) for name, column in HEAD.items() if email[column]]
    rows += [("  also to", other) for other in email.get("also_to") or ()]
    rows += [
        ("  file", f"{file['filename']} ({file['content_type']}, {file['bytes']} B)")
        for file in found["attachments"]
    ]
    if found["archived_at"]:
        rows.append(("  archived", moment(found["archived_at"])))
    print_table(rows[0], rows[1:])
    click.echo()
    print_table(*timeline(found))


def _print_message(message: dict[str, Any]) -> None:
    click.echo()
    message = {**message, "to": [message["to"], *(message["also_to"] or ())]}
    for name in ("from", "to", "cc", "bcc", "reply_to", "subject"):
        if value := message[name]:
            text = value if isinstance(value, str) else ", ".join(value)
            click.echo(f"{name.capitalize().replace('_t', '-T')}: {printable(text)}")
    click.echo(lines(f"\n{message['text'] or ''}".rstrip()))
    if message["html"]:
        click.echo(lines(f"\n--- html\n{message['html']}"))
