"""`mailgres worker`: send emails until told to stop."""

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
    from mailgres.cli.commands.serve import http_service  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet  # noqa: PLC0415 - loaded when it runs

    if open_metrics and not serve:
        raise click.UsageError("--open-metrics is about --serve.")
    beside = http_service(settings, open_metrics=open_metrics) if serve else fleet.nothing_beside
    logs.start(settings)
    if settings.processes > 1:
        fleet.run_many(settings, beside)
    else:
        click.echo(json.dumps(fleet.run_one(settings, beside).as_dict()))
