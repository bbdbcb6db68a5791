"""Errors at a terminal: the message and what to do, without a traceback."""

from __future__ import annotations

import signal
from typing import Any

import click

from mailgres.errors import MailgresError
from mailgres.safe_errors import printable

INTERRUPTED = 128 + signal.SIGINT
_WHOLE_SENTENCE = 1000


class CliError(click.ClickException):
    """A mailgres error, shown at a terminal."""

    def __init__(self, error: MailgresError) -> None:
        super().__init__(error.message)
        self.hint = error.hint

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - the signature is click's
        """Print one line for the error and one for what to do about it."""
        # Parts of it may come from the database or a provider.
        click.echo(printable(f"Error: {self.message}", "\n"), file=file, err=file is None)
        if self.hint:
            click.echo(printable(f"Hint: {self.hint}", "\n"), file=file, err=file is None)


class Group(click.Group):
    """A group that lists its commands with whole sentences."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of every command, on several lines if it is long."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_WHOLE_SENTENCE))
            for name, command in found
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class FriendlyGroup(Group):
    """A group whose commands may raise any MailgresError, and be interrupted."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the signature is click's
        """Run the command, turning our errors into click's and Ctrl-C into its exit code."""
        try:
            return super().invoke(ctx)
        except MailgresError as error:
            raise CliError(error) from error
        except (KeyboardInterrupt, click.Abort) as end:
            # At a prompt click raises Abort for Ctrl-C and for "no"; the context tells them apart.
            if isinstance(end, click.Abort) and not isinstance(end.__context__, KeyboardInterrupt):
                raise
            click.echo("\nInterrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
