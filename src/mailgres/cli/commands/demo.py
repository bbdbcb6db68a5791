"""`mailgres demo`: show the queue at work without any setup."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from mailgres import demo as demonstration
from mailgres.cli.support.own_server import own_server, server_options

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@server_options
def demo(*, database_url: str | None, data_dir: Path | None) -> None:
    """Show the queue at work in a temporary database.

    It starts an embedded PostgreSQL and ignores DATABASE_URL. With --database-url the temporary
    database is created on that server.

    \b
    Example:
      mailgres demo
    """
    from rich.console import Console  # noqa: PLC0415 - loaded when it runs

    # The faults are simulated and shown in tables; the worker's log would repeat them.
    logging.getLogger("mailgres").addHandler(logging.NullHandler())
    with own_server(data_dir) if database_url is None else nullcontext(database_url) as server:
        demonstration.run(Console(highlight=False), server)
