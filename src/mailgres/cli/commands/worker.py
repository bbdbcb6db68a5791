"""`mailgres worker`: send emails until it is stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import settings_options
from mailgres.cli.support.worker_options import LOGS, PIPELINE, SERVICE, open_metrics_option

if TYPE_CHECKING:
    from mailgres.settings import Settings


@click.command()
@settings_options(
    *PIPELINE, "processes", "poll_interval", "profile", "worker_name", *SERVICE, *LOGS
)
@click.option("--serve", is_flag=True, help="Also run the HTTP service, as `mailgres serve` does.")
@open_metrics_option
def worker(*, settings: Settings, serve: bool, open_metrics: bool) -> None:
    """Send emails until it is stopped.

    On SIGTERM or Ctrl-C it claims nothing more, finishes calls in progress for up to --grace
    seconds and gives other emails back. A second signal ends it at once. The exit code is 1 if the
    database could not be reached to record all outcomes; no email is lost by that.

    \b
    Examples:
      mailgres worker
      mailgres worker --processes 2 --concurrency 50
      MAILGRES_SERVE_SECRET=… mailgres worker --serve
    """
    from mailgres import logs  # noqa: PLC0415 - loaded when it runs
    from mailgres.cli.commands.serve import http_service  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet  # noqa: PLC0415 - loaded when it runs

    if open_metrics and not serve:
        raise click.UsageError("--open-metrics goes with --serve.")
    beside = http_service(settings, open_metrics=open_metrics) if serve else fleet.nothing_beside
    logs.start(settings)
    if settings.processes > 1:
        fleet.run_many(settings, beside)
    else:
        click.echo(json.dumps(fleet.run_one(settings, beside).as_dict()))
