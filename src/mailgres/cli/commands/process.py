"""`mailgres process`: send due emails and exit, for cron."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import settings_options
from mailgres.cli.support.worker_options import LOGS, PIPELINE

if TYPE_CHECKING:
    from mailgres.settings import Settings


NOTHING_DONE = 3


@click.command()
@settings_options(*PIPELINE, *LOGS)
@click.option("--until-empty", is_flag=True, help="Continue until no email is due.")
@click.option(
    "--max-seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after this time."
)
@click.option("--exit-empty", is_flag=True, help="Exit with 3 if no email was due.")
def process(
    *, settings: Settings, until_empty: bool, max_seconds: float | None, exit_empty: bool
) -> None:
    """Send due emails and exit, for cron.

    It sends one claim of --batch-size emails, or with --until-empty all. It prints one line of
    JSON. Concurrent runs never send an email twice.

    \b
    Examples:
      mailgres process --until-empty --max-seconds 50
      */2 * * * * mailgres process --until-empty >> /var/log/mailgres.log 2>&1
    """
    from mailgres import logs  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet, open_worker  # noqa: PLC0415 - loaded when it runs

    logs.start(settings)
    stopping = threading.Event()
    fleet.on_signals(stopping.set)
    with open_worker(settings, janitors=False, stopping=stopping) as once:
        summary = once.drain(once=not until_empty, max_seconds=max_seconds)
    click.echo(json.dumps(summary.as_dict()))
    if exit_empty and not summary.claimed:
        sys.exit(NOTHING_DONE)
