"""`mailgres dev`: everything a developer needs, running, and nothing of anybody else's changed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailgres import database, embedded, logs, migrate
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import setting_option
from mailgres.cli.support.own_server import own_server, server_options
from mailgres.errors import MailgresError
from mailgres.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator
    from mailgres.settings import Settings

DATABASE = "mailgres_dev"
CAPTURE = "capture"
ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')"
LOOK = "SELECT message->>'to', message->>'subject' FROM mailgres.captured"


@click.command()
@server_options
@click.option("--send", is_flag=True, help="Send through the providers of the settings.")
@setting_option("log_format")
@setting_option("log_level")
def dev(
    *,
    database_url: str | None,
    data_dir: Path | None,
    send: bool,
    log_format: str | None,
    log_level: str | None,
) -> None:
    """Keep a PostgreSQL, a worker and the captured inbox running until Ctrl-C.

    The PostgreSQL is an embedded one with a database of its own, which stays for the next time.
    DATABASE_URL, other variables and mailgres.toml are ignored, so nothing that they name is
    touched, and no email leaves.

    With --database-url the worker uses that database. It has to be migrated, its routes have to
    lead to `capture`, and neither they nor any default are changed. With --send the variables and
    mailgres.toml are read, and emails are sent through the providers that they name.

    \b
    Examples:
      mailgres dev
      mailgres dev --database-url postgresql://localhost/mine
      MAILGRES_PROVIDERS=smtp MAILGRES_SMTP_URL=smtp://localhost:1025 mailgres dev --send
    """
    flags: dict[str, object] = {"log_format": log_format, "log_level": log_level}
    if database_url is not None:
        _run(_guest_settings(flags | {"database_url": database_url}, send=send), own=False)
        return
    with _own_database(data_dir, send=send) as url:
        _run(_own_settings(flags | {"database_url": url}, send=send), own=True)


def _guest_settings(flags: dict[str, object], *, send: bool) -> Settings:
    """The settings for a database of somebody: none that would be written into it."""
    settings = load(os.environ, flags, Path()) if send else load({}, flags)
    if not migrate.status(settings.database_url).is_current:
        raise MailgresError(
            f"{database.describe(settings.database_url)} does not have the schema of this mailgres",
            "Run `mailgres migrate` on it, or leave out --database-url: dev has a database of its"
            " own.",
        )
    if not send:
        with operator(settings.database_url) as asked:
            _refuse_other_providers(asked)
    return settings


def _own_settings(flags: dict[str, object], *, send: bool) -> Settings:
    if send:
        return load(os.environ, flags, Path())
    return load({}, flags | {"profile": "development", "providers": CAPTURE})


def _refuse_other_providers(asked: Operator) -> None:
    for one in asked.ask("routes"):
        for provider in one["providers"]:
            if provider != CAPTURE:
                raise MailgresError(
                    f"the route {one['route']} leads to the provider {provider}: this queue is not"
                    " for development",
                    "Leave out --database-url: dev has a database of its own.",
                )


@contextmanager
def _own_database(data_dir: Path | None, *, send: bool) -> Iterator[str]:
    """Give the URL of the embedded database, its routes as the migration makes them."""
    with own_server(data_dir) as server:
        url = embedded.database(server, DATABASE)
        migrate.upgrade(url, on_notice=lambda text: click.echo(text, err=True))
        with operator(url) as asked:
            if not send:
                _refuse_live_senders(asked)
            asked.ask("reset_routes")
            asked.ask("reset_default_route")
        yield url


def _refuse_live_senders(asked: Operator) -> None:
    """Take nothing away from a worker that sends what is in this database."""
    for worker in asked.ask("live_senders"):
        raise MailgresError(
            f"the worker {worker} sends what is in this database",
            "Stop it first. If it was killed, it counts as alive for 45 seconds.",
        )


def _run(settings: Settings, *, own: bool) -> None:
    from mailgres.worker import fleet, open_worker  # noqa: PLC0415 - loaded when it runs

    logs.start(settings)
    with open_worker(settings, guest=not own) as worker:
        fleet.on_signals(worker.stop)
        _print_welcome(settings, own=own)
        worker.run()


def _print_welcome(settings: Settings, *, own: bool) -> None:
    """Say what runs, and how to use it; the URL of somebody's database may hold a password."""
    url = settings.database_url if own else "$DATABASE_URL"
    quoted = f"'{url}'" if own else f'"{url}"'
    click.echo(f"DATABASE_URL={url}\n" if own else f"{database.describe(settings.database_url)}\n")
    if settings.providers == (CAPTURE,):
        click.echo("No email leaves: all are captured. Enqueue one, and look at what arrived:\n")
    else:
        click.echo(f"Emails are sent through {', '.join(settings.providers)}. Enqueue one:\n")
    for statement in (ENQUEUE, LOOK) if settings.providers == (CAPTURE,) else (ENQUEUE,):
        click.echo(f'  psql {quoted} -c "{statement}"')
    click.echo()
    click.echo("Ctrl-C ends it.")
