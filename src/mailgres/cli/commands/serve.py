"""`mailgres serve`: the HTTP service, which a worker can also run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import settings_options
from mailgres.cli.support.worker_options import LOGS, PIPELINE, SERVICE, open_metrics_option
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.settings import Settings
    from mailgres.worker.fleet import Beside

OF_THE_EXTRA = {"prometheus_client", "standardwebhooks", "starlette", "uvicorn"}


@click.command()
@settings_options(*PIPELINE, *SERVICE, *LOGS)
@open_metrics_option
@click.option("--inbox", is_flag=True, help="Serve captured emails at /inbox/, for staging.")
@click.option("--page", is_flag=True, help="Serve the page for operators at /page/.")
def serve(*, settings: Settings, open_metrics: bool, inbox: bool, page: bool) -> None:
    """Run the HTTP service: a trigger for schedulers, health, metrics for Prometheus.

    POST /functions/v1/process-email-queue sends due emails, as `mailgres process` does; callers
    need the secret in MAILGRES_SERVE_SECRET. The service also runs the janitors. On SIGTERM or
    Ctrl-C, calls in progress are finished for up to --grace seconds and other emails given back.

    With --inbox, people who know MAILGRES_INBOX_SECRET see captured emails at /inbox/, under the
    host names in MAILGRES_INBOX_HOSTS. The database role has to be a member of mailgres_operator.

    With --page, people who know MAILGRES_PAGE_SECRET operate the queue at /page/, under the host
    names in MAILGRES_PAGE_HOSTS. The database role has to be a member of mailgres_operator and
    mailgres_analyst.

    \b
    Examples:
      MAILGRES_SERVE_SECRET=… mailgres serve
      mailgres serve --serve-host 0.0.0.0 --serve-port 8080
    """
    from mailgres import logs  # noqa: PLC0415 - loaded when it runs
    from mailgres.worker import fleet  # noqa: PLC0415 - loaded when it runs

    beside = http_service(settings, open_metrics=open_metrics, inbox=inbox, page=page)
    logs.start(settings)
    fleet.run_none(settings, beside)


def http_service(
    settings: Settings, *, open_metrics: bool = False, inbox: bool = False, page: bool = False
) -> Beside:
    """Return what runs the service beside a worker; refuse settings that it cannot run with."""
    try:
        from mailgres.http import server  # noqa: PLC0415 - an extra, loaded when it runs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_EXTRA:
            raise
        raise MailgresError(
            f"The HTTP service needs {error.name}, which is not installed",
            "pip install starlette uvicorn prometheus_client standardwebhooks",
        ) from None
    server.check(settings, inbox=inbox, page=page)
    return lambda pipeline, stopping: server.serving(
        settings, pipeline, stopping, open_metrics=open_metrics, inbox=inbox, page=page
    )
