"""Options that several commands share."""

from __future__ import annotations

import click

database_url = click.option(
    "--database-url",
    metavar="URL",
    envvar=["DATABASE_URL", "SUPABASE_DB_URL"],
    show_envvar=True,
    help="The database. Prefer the variable: other users of the machine see arguments.",
)
