"""`mailgres migrate`: create or update the schema."""

from __future__ import annotations

import click

from mailgres import migrate as migrations
from mailgres.cli.support.options import database_url as database_url_option


@click.command()
@database_url_option
@click.option("--sql", "print_sql", is_flag=True, help="Print the SQL for an administrator.")
@click.option("--from", "start", metavar="REVISION", help="With --sql: start at this revision.")
@click.option("--check", "only_check", is_flag=True, help="Exit with 1 if there is work to do.")
def migrate(
    *, database_url: str | None, print_sql: bool, start: str | None, only_check: bool
) -> None:
    """Create the mailgres schema, or bring it to this version.

    One transaction: it happens entirely or not at all. Running it again does nothing, and
    several at once do the work once.

    \b
    Examples:
      mailgres migrate
      mailgres migrate --check
      mailgres migrate --sql > mailgres.sql && psql -1 -v ON_ERROR_STOP=1 -f mailgres.sql
    """
    if print_sql and only_check:
        raise click.UsageError("--sql and --check exclude each other.")
    if start and not print_sql:
        raise click.UsageError("--from goes with --sql.")
    if print_sql:
        click.echo(migrations.script(start), nl=False)
    elif only_check:
        migrations.check(database_url)
        click.echo("The schema is up to date.")
    else:
        _upgrade(database_url)


def _upgrade(database_url: str | None) -> None:
    change = migrations.upgrade(database_url, on_notice=lambda text: click.echo(text, err=True))
    if change.before == change.after:
        click.echo(f"Nothing to do: the schema is at {change.after}.")
    elif change.before is None:
        click.echo(f"Created the schema at {change.after}.")
    else:
        click.echo(f"Migrated the schema from {change.before} to {change.after}.")
