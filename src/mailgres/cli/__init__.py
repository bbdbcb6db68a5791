"""The command line: each command is a thin layer over the library."""

from __future__ import annotations

import logging
import os
from importlib import import_module

import click

from mailgres import __version__
from mailgres.cli.support.errors import FriendlyGroup
from mailgres.resources import schema_revision
from mailgres.values.kinds import suggestion

__all__ = ["main"]

COMMANDS = (
    "adopt",
    "alerts",
    "cancel",
    "config",
    "demo",
    "dev",
    "dlq",
    "doctor",
    "enqueue",
    "errors",
    "eta",
    "janitor",
    "list",
    "migrate",
    "policies",
    "process",
    "producers",
    "providers",
    "quarantine",
    "recover",
    "reschedule",
    "retry",
    "routes",
    "senders",
    "serve",
    "show",
    "status",
    "suppressions",
    "templates",
    "tenants",
    "webhooks",
    "worker",
)
"""Every command; its module in `commands/` has its name."""


class Commands(FriendlyGroup):
    """The commands, each imported only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"mailgres.cli.commands.{cmd_name}")
        by_name = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in by_name if each.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the nearest name."""
        word = args[0]
        if word not in COMMANDS and (meant := suggestion(word, COMMANDS)):
            ctx.fail(f"No such command {word!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


def _print_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    if asked and not context.resilient_parsing:
        click.echo(f"mailgres {__version__}, schema {schema_revision()}")
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the revision of its schema.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """An email queue that lives in your PostgreSQL."""
    # psycopg warns if a connection cannot be rolled back after Ctrl-C; that is of no use here.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)
    if os.environ.get("NO_COLOR"):
        context.color = False
