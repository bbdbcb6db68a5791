"""`mailgres migrate`: create or update the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mailgres import migrate as migrations
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.output import count
from mailgres.database import describe
from mailgres.errors import NotMigrated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.schema.objects import Difference

SHOWN = 5


@click.command()
@database_url_option
@click.option("--sql", "print_sql", is_flag=True, help="Print the SQL for an administrator.")
@click.option("--from", "start", metavar="REVISION", help="With --sql: start at this revision.")
@click.option("--check", "only_check", is_flag=True, help="Exit with 1 if there is work to do.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and which locks it takes.")
@click.option(
    "--downgrade", metavar="VERSION", help="Return to a version that this database had before."
)
def migrate(
    *,
    database_url: str | None,
    print_sql: bool,
    start: str | None,
    only_check: bool,
    dry_run: bool,
    downgrade: str | None,
) -> None:
    """Create the mailgres schema, or bring it to this version.

    One transaction: it happens entirely or not at all. Only what differs is changed, so running it
    again does nothing and locks no table. Several at once do the work once.

    \b
    Examples:
      mailgres migrate
      mailgres migrate --check
      mailgres migrate --dry-run
      mailgres migrate --sql > mailgres.sql && psql -v ON_ERROR_STOP=1 -f mailgres.sql
      mailgres migrate --downgrade 0.1.0
    """
    if sum((print_sql, only_check, dry_run, downgrade is not None)) > 1:
        raise click.UsageError("--sql, --check, --dry-run and --downgrade exclude each other.")
    if start and not print_sql:
        raise click.UsageError("--from goes with --sql.")
    if print_sql:
        click.echo(migrations.script(start), nl=False)
    elif only_check:
        _check(database_url)
    elif dry_run:
        _dry_run(database_url)
    else:
        _migrate(database_url, downgrade)


def _check(database_url: str | None) -> None:
    found = migrations.status(database_url)
    if not found.is_current:
        raise migrations.not_migrated(describe(database_url), found)
    _, objects = migrations.differences(database_url)
    if objects:
        listed = ", ".join(f"{each.object} ({each.state})" for each in objects[:SHOWN])
        more = f" and {len(objects) - SHOWN} more" if len(objects) > SHOWN else ""
        raise NotMigrated(f"Not as in this version: {listed}{more}")
    click.echo("The schema is up to date.")


def _dry_run(database_url: str | None) -> None:
    revisions, objects = migrations.differences(database_url)
    for revision in revisions:
        click.echo(f"run revision {revision}: {migrations.locks(revision)}")
    _show(objects)
    if not revisions and not objects:
        click.echo("Nothing to do.")


def _show(objects: Sequence[Difference]) -> None:
    acts = {"missing": "create", "obsolete": "drop"}
    for each in objects:
        if each.kind != "comment":
            click.echo(f"{acts.get(each.state, 'replace')} {each.object}: {each.lock}")
    comments = [each for each in objects if each.kind == "comment"]
    if comments:
        locks = sorted({each.lock for each in comments})
        click.echo(f"change {count(len(comments), 'comment')}: {', '.join(locks[:SHOWN])}")


def _migrate(database_url: str | None, version: str | None) -> None:
    def show(text: str) -> None:
        click.echo(text, err=True)

    if version is None:
        change = migrations.upgrade(database_url, on_notice=show)
    else:
        change = migrations.downgrade(database_url, version, on_notice=show)
    if change.before is None:
        click.echo(f"Created the schema at {change.after}.")
    elif change.after is None:
        click.echo("Removed the schema and all emails.")
    elif change.before != change.after:
        click.echo(f"Migrated the schema from {change.before} to {change.after}.")
    elif change.replaced:
        objects = count(change.replaced, "object")
        click.echo(f"Replaced {objects} (functions, views, triggers, comments).")
    elif version is not None:
        click.echo(f"The schema is that of mailgres {version} again.")
    else:
        click.echo(f"Nothing to do: the schema is at {change.after}.")
