"""`mailgres demo`: see the queue at work without setting anything up."""

from __future__ import annotations

import logging

import click

from mailgres import demo as demonstration


@click.command()
def demo() -> None:
    """Show the queue at work in a database of its own, dropped afterwards.

    Uses the server that DATABASE_URL names, else starts an embedded PostgreSQL.

    \b
    Example:
      mailgres demo
    """
    from rich.console import Console  # noqa: PLC0415 - loaded when it runs

    # The faults are simulated and shown in tables; the worker's log would tell them once more.
    logging.getLogger("mailgres").addHandler(logging.NullHandler())
    demonstration.run(Console(highlight=False))
