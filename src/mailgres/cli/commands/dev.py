"""`mailgres dev`: a complete development setup that changes no other database."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psycopg

from mailgres import database, embedded
from mailgres.cli.support.dev_run import CAPTURE, INBOX_PORT, DevOptions, run_dev
from mailgres.cli.support.operator import QUERIES, operator
from mailgres.cli.support.options import setting_option
from mailgres.cli.support.own_server import own_server, server_options
from mailgres.cli.support.preloading import preloading
from mailgres.errors import MailgresError
from mailgres.schema import status
from mailgres.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator
    from mailgres.settings import Settings

DATABASE = "mailgres_dev"
_AFTER_THE_SERVER = ("mailgres.worker", "mailgres.inbox", "mailgres.http.dev")
"""What is needed when the server has started."""
_FOR_NEW_DATA = ("mailgres.migrate",)
"""What only a new database needs: it takes longer than all the rest."""


@click.command()
@server_options
@click.option("--fresh", is_flag=True, help="Start with an empty database.")
@click.option(
    "--templates",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Push the templates in this directory, and again whenever a file is saved.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=INBOX_PORT,
    show_default=True,
    help="Port of the inbox; if it is taken, the next free one is used.",
)
@click.option("--send", is_flag=True, help="Send through the providers of the settings.")
@setting_option("log_format")
@setting_option("log_level")
def dev(
    *,
    database_url: str | None,
    data_dir: Path | None,
    fresh: bool,
    templates: Path | None,
    port: int,
    send: bool,
    log_format: str | None,
    log_level: str | None,
) -> None:
    """Run a PostgreSQL, a worker that captures all emails, and an inbox, until Ctrl-C.

    The PostgreSQL is embedded; its database is kept for the next time, unless you say --fresh.
    DATABASE_URL, other variables and mailgres.toml are ignored, so no other database is touched,
    and no email is sent. Every email has a line here and a page in the inbox.

    With --database-url the worker uses that database. It must be migrated and all of its routes
    must have the provider `capture`; routes and defaults are not changed. With --send the variables
    and mailgres.toml are read, and emails are sent through the providers that they name.

    \b
    Examples:
      mailgres dev
      mailgres dev --fresh --templates templates/
      mailgres dev --database-url postgresql://localhost/mine
      MAILGRES_PROVIDERS=smtp MAILGRES_SMTP_URL=smtp://localhost:1025 mailgres dev --send
    """
    # Every email has a line of its own, so the log of the worker is only about trouble.
    flags: dict[str, object] = {"log_format": log_format, "log_level": log_level or "warning"}
    if database_url is not None:
        if fresh:
            raise click.UsageError("--fresh is for the database of dev, not for --database-url")
        settings = _guest_settings(flags | {"database_url": database_url}, send=send)
        run_dev(settings, DevOptions(own=False, port=port, templates=templates))
        return
    with _own_database(data_dir, send=send, fresh=fresh) as url:
        settings = _own_settings(flags | {"database_url": url}, send=send)
        run_dev(settings, DevOptions(own=True, port=port, templates=templates))


def _guest_settings(flags: dict[str, object], *, send: bool) -> Settings:
    """Return the settings for an existing database, into which no setting is written."""
    settings = load(os.environ, flags, Path()) if send else load({}, flags)
    if not status.read(settings.database_url).is_current:
        raise MailgresError(
            f"{database.describe(settings.database_url)} does not have the schema of this version",
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
                    f"the route {one['route']} has the provider {provider}: this queue is not"
                    " for development",
                    "Leave out --database-url: dev has a database of its own.",
                )


@contextmanager
def _own_database(data_dir: Path | None, *, send: bool, fresh: bool) -> Iterator[str]:
    """Yield the URL of the embedded database, with its routes reset."""
    with ExitStack() as stack:
        first = _FOR_NEW_DATA if embedded.is_new(data_dir) else ()
        with preloading((*first, *_AFTER_THE_SERVER)):
            server = stack.enter_context(own_server(data_dir))
        if fresh:
            _drop(server)
        url = embedded.database(server, DATABASE)
        if not status.read(url).is_current:
            _migrate(url)
        with operator(url) as asked:
            if not send:
                _refuse_live_senders(asked)
            asked.ask("reset_routes")
            asked.ask("reset_default_route")
        yield url


def _migrate(url: str) -> None:
    from mailgres import migrate  # noqa: PLC0415 - alembic takes longer than the rest of a start

    migrate.upgrade(url, on_notice=lambda text: click.echo(text, err=True))


def _drop(server: str) -> None:
    """Drop the database of earlier runs, unless another `dev` is using it."""
    try:
        with database.connect(server, autocommit=True) as connection:
            connection.execute(QUERIES["drop_dev_database"])
    except psycopg.errors.ObjectInUse:
        raise MailgresError(
            "another program uses the database of `mailgres dev`",
            "Stop the other `mailgres dev` and what is connected to it, or leave out --fresh.",
        ) from None


def _refuse_live_senders(asked: Operator) -> None:
    """Refuse to run beside a worker that sends the emails of this database."""
    for worker in asked.ask("live_senders"):
        raise MailgresError(
            f"the worker {worker} sends the emails of this database",
            "Stop it first. If it was killed, it counts as alive for 45 seconds.",
        )
