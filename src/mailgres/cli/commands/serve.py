"""`mailgres serve`: the HTTP service, and how a worker gets it beside itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import settings_options
from mailgres.cli.support.worker_options import LOGS, PIPELINE, SERVICE, open_metrics_option
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.settings import Settings
    from mailgres.worker.fleet import Beside

OF_THE_EXTRA = {"prometheus_client", "starlette", "uvicorn"}


@click.command()
@settings_options(*PIPELINE, *SERVICE, *LOGS)
@open_metrics_option
def serve(*, settings: Settings, open_metrics: bool) -> None:
    """Answer HTTP: a trigger for schedulers, health, metrics for Prometheus.

    POST /functions/v1/process-email-queue sends what is due, as `mailgres process` does; callers
    bring the secret in MAILGRES_SERVE_SECRET. The janitors work beside it. SIGTERM or Ctrl-C: what
    is under way is finished for up to --grace seconds, the rest is given back.

    \b
    Examples:
      MAILGRES_SERVE_SECRET=… mailgres serve
      mailgres serve --serve-host 0.0.0.0 --serve-port 8080
    """
    from mailgres import logs  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet  # noqa: PLC0415 - loaded when it runs

    beside = http_service(settings, open_metrics=open_metrics)
    logs.start(settings)
    fleet.run_none(settings, beside)


def http_service(settings: Settings, *, open_metrics: bool = False) -> Beside:
    """What runs the service beside a worker; refuses at once what it cannot be run with."""
    try:
        from mailgres.http import server  # noqa: PLC0415 - an extra, loaded when it runs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_EXTRA:
            raise
        raise MailgresError(
            f"The HTTP service needs {error.name}, which is not installed",
            "pip install starlette uvicorn prometheus_client",
        ) from None
    server.check(settings)
    return lambda pipeline, stopping: server.serving(
        settings, pipeline, stopping, open_metrics=open_metrics
    )
