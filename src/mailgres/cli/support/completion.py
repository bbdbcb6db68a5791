"""Completion of names in the shell: what the database knows, or nothing if it does not answer."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import psycopg

from mailgres import queries
from mailgres.errors import MailgresError
from mailgres.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    Complete = Callable[[click.Context, click.Parameter, str], list[str]]

WAIT_SECONDS = 1.0
"""How long a key press waits for the database."""
MOST = 200
QUERIES = queries.load("cli/support/completion.sql")


def names_of(what: str) -> Complete:
    """Return a function that completes the names of one query of completion.sql."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        found: list[str] = []
        asked = Thread(target=_ask, args=(ctx, what, incomplete, found), daemon=True)
        asked.start()
        asked.join(WAIT_SECONDS)
        return list(found)

    return complete


def _ask(ctx: click.Context, what: str, incomplete: str, found: list[str]) -> None:
    # An error would be printed into the line that is being typed.
    try:
        flags = {name: ctx.params.get(name) for name in ("database_url", "config")}
        url = load(os.environ, flags, Path()).database_url
        if url:
            with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                rows = connection.execute(QUERIES[what], {"start": incomplete, "most": MOST})
                found += [row[0] for row in rows]
    except (MailgresError, psycopg.Error, OSError):
        return
