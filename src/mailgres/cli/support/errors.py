"""Errors for people at a terminal: what went wrong, what to do, no traceback."""

from __future__ import annotations

import signal
from typing import Any

import click

from mailgres.errors import MailgresError
from mailgres.safe_errors import printable

INTERRUPTED = 128 + signal.SIGINT


class CliError(click.ClickException):
    """A mailgres error on its way to the terminal."""

    def __init__(self, error: MailgresError) -> None:
        super().__init__(error.message)
        self.hint = error.hint

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - the signature is click's
        """Print one line for the error and one for what to do about it."""
        # Some of it the database or a provider has written.
        click.echo(printable(f"Error: {self.message}", "\n"), file=file, err=file is None)
        if self.hint:
            click.echo(printable(f"Hint: {self.hint}", "\n"), file=file, err=file is None)


class FriendlyGroup(click.Group):
    """A group whose commands may raise any MailgresError, and be interrupted."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the signature is click's
        """Run the command, turning our errors into click's and Ctrl-C into its exit code."""
        try:
            return super().invoke(ctx)
        except MailgresError as error:
            raise CliError(error) from error
        except (KeyboardInterrupt, click.Abort) as end:
            # Of a prompt click makes the same of Ctrl-C and of no; the cause it leaves tells.
            if isinstance(end, click.Abort) and not isinstance(end.__context__, KeyboardInterrupt):
                raise
            click.echo("\nInterrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
