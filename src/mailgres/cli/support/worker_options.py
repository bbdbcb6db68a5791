"""The settings that are options of commands that send emails."""

from __future__ import annotations

import click

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
    help="Serve /metrics to this machine without a token, if no other machine can connect.",
)
