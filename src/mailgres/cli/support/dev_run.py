"""What `mailgres dev` runs: the worker, the inbox beside it, and what both print."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mailgres import database, logs
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mailgres.settings import Settings

CAPTURE = "capture"
INBOX_PORT = 8726
ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')"
HOW_TO_INSTALL = "pip install starlette uvicorn prometheus_client"
OF_THE_EXTRA = {"starlette", "uvicorn", "prometheus_client"}


@dataclass(frozen=True)
class DevOptions:
    """`own`: the database is the one of dev. `port`: where the inbox starts looking for a port."""

    own: bool
    port: int = INBOX_PORT
    templates: Path | None = None


def run_dev(settings: Settings, options: DevOptions) -> None:
    """Run until a signal arrives."""
    from mailgres.worker import fleet, open_worker  # noqa: PLC0415 - loaded when it runs

    logs.start(settings)
    with ExitStack() as stack:
        worker = stack.enter_context(open_worker(settings, guest=not options.own))
        fleet.on_signals(worker.stop)
        notices = _watch_templates(stack, settings, options)
        inbox = _open_inbox(stack, settings, options, notices)
        _print_welcome(settings, inbox, own=options.own)
        worker.run()
    click.echo("Stopped.")


def _watch_templates(
    stack: ExitStack, settings: Settings, options: DevOptions
) -> Callable[[], Sequence[str]]:
    if options.templates is None:
        return tuple
    from mailgres.cli.support.template_watch import TemplateWatch  # noqa: PLC0415 - when it runs

    watch = TemplateWatch(options.templates, settings.database_url or "")
    return stack.enter_context(watch).notices


def _open_inbox(
    stack: ExitStack,
    settings: Settings,
    options: DevOptions,
    notices: Callable[[], Sequence[str]],
) -> str:
    """Serve the inbox; return a line that says where, or why not."""
    try:
        from mailgres.cli.support.email_lines import EmailLines  # noqa: PLC0415 - an extra
        from mailgres.http.dev import serving_inbox  # noqa: PLC0415 - an extra
        from mailgres.inbox import Inbox  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_EXTRA:
            raise
        return f"No inbox: {error.name} is not installed. {HOW_TO_INSTALL}"
    token = _token(settings, options)
    inbox = Inbox(settings.database_url or "", token, token_in_url=True, notices=notices)
    try:
        inbox.check()
    except MailgresError as error:
        inbox.close()
        return f"No inbox: {error.message}. {error.hint}"
    address = stack.enter_context(serving_inbox(inbox, options.port))
    stack.enter_context(EmailLines(inbox.store))
    taken = f"Port {options.port} is taken by {address.taken_by}.\n" if address.taken_by else ""
    return f"{taken}Inbox: http://127.0.0.1:{address.port}/?token={token}"


def _token(settings: Settings, options: DevOptions) -> str:
    """Return the secret of the inbox: the same for the same database of dev, so tabs stay open."""
    if not options.own:
        return secrets.token_hex(16)
    key = (settings.database_url or "").partition("@")[0].encode()  # with the server's password
    return hmac.new(key, b"mailgres inbox", hashlib.sha256).hexdigest()[:32]


def _print_welcome(settings: Settings, inbox: str, *, own: bool) -> None:
    """Say what runs and how to use it; the URL of an existing database may hold a password."""
    url = settings.database_url if own else "$DATABASE_URL"
    quoted = f"'{url}'" if own else f'"{url}"'
    click.echo(inbox)
    click.echo(f"DATABASE_URL={url}\n" if own else f"{database.describe(settings.database_url)}\n")
    if settings.providers == (CAPTURE,):
        click.echo("No email is sent: all are captured. Enqueue one:\n")
    else:
        click.echo(f"Emails are sent through {', '.join(settings.providers)}. Enqueue one:\n")
    click.echo(f'  psql {quoted} -c "{ENQUEUE}"')
    click.echo()
    click.echo("Ctrl-C stops it.")
