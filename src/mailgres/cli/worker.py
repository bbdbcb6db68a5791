"""`mailgres worker` and `mailgres process`: work the queue, for ever or once."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING

import click

from mailgres.cli.options import settings_options

if TYPE_CHECKING:
    from mailgres.settings import Settings

NOTHING_DONE = 3
PIPELINE = (
    "database_url",
    "providers",
    "from_email",
    "concurrency",
    "batch_size",
    "lease",
    "grace",
)
SERVICE = ("serve_host", "serve_port")
LOGS = ("log_format", "log_level")
open_metrics_option = click.option(
    "--open-metrics",
    is_flag=True,
    help="Show /metrics to this machine without a token; only if no other machine can call.",
)


@click.command()
@settings_options(
    *PIPELINE, "processes", "poll_interval", "profile", "worker_name", *SERVICE, *LOGS
)
@click.option("--serve", is_flag=True, help="Answer HTTP, too, as `mailgres serve` does.")
@open_metrics_option
def worker(*, settings: Settings, serve: bool, open_metrics: bool) -> None:
    """Send emails until told to stop.

    SIGTERM or Ctrl-C: nothing more is claimed, what is under way is finished for up to --grace
    seconds, the rest is given back. A second one ends it at once. The exit code is 1 if the
    database was away by then and does not know all that was done; nothing is lost by that.

    \b
    Examples:
      mailgres worker
      mailgres worker --processes 2 --concurrency 50
      MAILGRES_SERVE_SECRET=… mailgres worker --serve
    """
    from mailgres import logs  # noqa: PLC0415 - loaded when it runs
    from mailgres.cli.serve import http_service  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet  # noqa: PLC0415 - loaded when it runs

    if open_metrics and not serve:
        raise click.UsageError("--open-metrics is about --serve.")
    beside = http_service(settings, open_metrics=open_metrics) if serve else fleet.nothing_beside
    logs.start(settings)
    if settings.processes > 1:
        fleet.run_many(settings, beside)
    else:
        click.echo(json.dumps(fleet.run_one(settings, beside).as_dict()))


@click.command()
@settings_options(*PIPELINE, *LOGS)
@click.option("--until-empty", is_flag=True, help="Go on until nothing is due.")
@click.option("--max-seconds", type=click.FloatRange(min=0, min_open=True), help="Not longer.")
@click.option("--exit-empty", is_flag=True, help="Exit with 3 if there was nothing to do.")
def process(
    *, settings: Settings, until_empty: bool, max_seconds: float | None, exit_empty: bool
) -> None:
    """Send what is due and end: for cron.

    One claim of --batch-size emails, or all with --until-empty. Prints one line of JSON. Several at
    once never send an email twice.

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
