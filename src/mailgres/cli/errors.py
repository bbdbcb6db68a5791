"""Errors for people at a terminal: what went wrong, what to do, no traceback."""

from __future__ import annotations

from typing import Any

import click

from mailgres.errors import MailgresError


class CliError(click.ClickException):
    """A mailgres error on its way to the terminal."""

    def __init__(self, error: MailgresError) -> None:
        super().__init__(error.message)
        self.hint = error.hint

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - the signature is click's
        """Print one line for the error and one for what to do about it."""
        click.echo(f"Error: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"Hint: {self.hint}", file=file, err=file is None)


class FriendlyGroup(click.Group):
    """A group whose commands may raise any MailgresError."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the signature is click's
        """Run the command, turning our errors into click's."""
        try:
            return super().invoke(ctx)
        except MailgresError as error:
            raise CliError(error) from error
