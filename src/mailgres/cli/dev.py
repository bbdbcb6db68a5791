"""`mailgres dev`: everything a developer needs, running."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mailgres import embedded, migrate
from mailgres.settings import load

DATABASE = "mailgres_dev"
ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')"
LOOK = "SELECT message->>'to', message->>'subject' FROM mailgres.captured"


@click.command()
def dev() -> None:
    """Keep a PostgreSQL, a worker and the captured inbox running until Ctrl-C.

    The database stays for the next time. With DATABASE_URL set, that database is used and migrated.

    \b
    Examples:
      mailgres dev
      DATABASE_URL=postgresql://localhost/mine mailgres dev
    """
    from mailgres.worker import fleet, open_worker  # noqa: PLC0415 - loaded when it runs

    given = os.environ.get("DATABASE_URL")
    with embedded.server() as server:
        url = given or embedded.database(server, DATABASE)
        migrate.upgrade(url, on_notice=lambda text: click.echo(text, err=True))
        flags = {"database_url": url, "profile": "development"}
        with open_worker(load(os.environ, flags, Path())) as worker:
            fleet.on_signals(worker.stop)
            click.echo(f"DATABASE_URL={url}\n")
            click.echo("Enqueue an email, and look at what arrived:\n")
            for statement in (ENQUEUE, LOOK):
                click.echo(f"  psql '{url}' -c \"{statement}\"")
            click.echo()
            click.echo("Ctrl-C ends it.")
            worker.run()
