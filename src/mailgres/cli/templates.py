"""`mailgres templates`: push, pull, list, show, preview and retire templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mailgres import database
from mailgres.cli.options import database_url as database_url_option
from mailgres.cli.options import dry_run as dry_run_option
from mailgres.cli.payload import read_payload
from mailgres.cli.show import as_json, table
from mailgres.templates import Draft, Template, read_templates, stored, write_templates


@click.group()
def templates() -> None:
    """Keep templates in files and bring them to the database.

    A template is a file such as welcome_user.html: settings and subject in front matter, then the
    HTML part. welcome_user.txt is its text part, welcome_user.pt.html a translation.
    """


@templates.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@dry_run_option
@database_url_option
def push(*, paths: tuple[Path, ...], dry_run: bool, database_url: str | None) -> None:
    """Make the templates in directories or files the active ones.

    Everything is checked first, and all of it is written or nothing. What did not change gets no
    new version.

    \b
    Examples:
      mailgres templates push templates/
      mailgres templates push templates/welcome_user.html --dry-run
    """
    drafts = read_templates(list(paths))
    with database.connect(database_url) as connection:
        pushed = [stored.push(connection, draft) for draft in drafts]
        if dry_run:
            connection.rollback()
    for each in pushed:
        click.echo(f"{each.name}: {each.change} (version {each.version})")


@templates.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--force", is_flag=True, help="Overwrite files that say something else.")
@database_url_option
def pull(*, directory: Path, force: bool, database_url: str | None) -> None:
    """Write the active templates into a directory.

    Pushing them again changes nothing.

    \b
    Example:
      mailgres templates pull templates/
    """
    with database.connect(database_url) as connection:
        found = [one for one in stored.list_templates(connection) if one.retired_at is None]
        drafts = [stored.read(connection, one) for one in found]
    for path in write_templates(drafts, directory, force=force):
        click.echo(path)
    click.echo(f"{len(drafts)} templates are in {directory}.")


@templates.command("list")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the templates.

    \b
    Examples:
      mailgres templates list
      mailgres templates list --json | jq -r '.[].name'
    """
    with database.connect(database_url) as connection:
        found = stored.list_templates(connection)
    if as_json_:
        as_json([_as_json(one) for one in found])
        return
    rows = []
    for one in found:
        needs = ", ".join(one.settings["required_variables"]) or "-"
        version = "retired" if one.retired_at else str(one.active_version)
        about = str(one.settings["description"])
        rows.append((one.name, version, " ".join(one.locales), needs, about))
    for line in table(("template", "version", "languages", "needs", "description"), rows):
        click.echo(line)


@templates.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), help="Not the active version but this one.")
@database_url_option
def show(*, name: str, version: int | None, database_url: str | None) -> None:
    """Show a template: its settings and its sources.

    \b
    Examples:
      mailgres templates show welcome_user
      mailgres templates show welcome_user --version 2
    """
    with database.connect(database_url) as connection:
        found = stored.find(connection, name)
        draft = stored.read(connection, found, version)
    shown = version or found.active_version
    state = "active" if shown == found.active_version else f"{found.active_version} is active"
    retired = f", retired since {found.retired_at:%Y-%m-%d %H:%M}" if found.retired_at else ""
    click.echo(f"{name}, version {shown} ({state}){retired}")
    for key, value in found.settings.items():
        if value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(f"{key}: {text}")
    for locale, content in draft.contents.items():
        for part, source in content.parts().items():
            click.echo(f"\n--- {locale}, {part}\n{source}")


@templates.command()
@click.argument("name")
@click.option(
    "--payload", metavar="JSON", help="JSON, @FILE or - (standard input). Default: the sample."
)
@click.option("--locale", help="The language, instead of the payload's.")
@click.option("--version", type=click.IntRange(min=1), help="Not the active version but this one.")
@click.option("--html", "only_html", is_flag=True, help="Print the HTML part and nothing else.")
@database_url_option
def preview(
    *,
    name: str,
    payload: str | None,
    locale: str | None,
    version: int | None,
    only_html: bool,
    database_url: str | None,
) -> None:
    """Render a template, of the database or of a file, as the worker would.

    \b
    Examples:
      mailgres templates preview welcome_user --payload '{"name": "Ana"}'
      mailgres templates preview welcome_user --payload @ana.json --html > welcome.html
      mailgres templates preview templates/welcome_user.html --locale pt
    """
    draft = _find_draft(name, version, database_url)
    variables = read_payload(payload) if payload is not None else draft.settings.get("sample", {})
    rendered = Template(draft.contents, draft.name).render(variables, locale)
    if only_html:
        click.echo(rendered.html or "")
        return
    click.echo(f"Subject: {rendered.subject}\n\n{rendered.text}", nl=False)
    if rendered.html is not None:
        click.echo(f"\n--- html\n{rendered.html}")


@templates.command()
@click.argument("name")
@dry_run_option
@database_url_option
def retire(*, name: str, dry_run: bool, database_url: str | None) -> None:
    """Take no new emails for a template. Those in the queue are still sent; a push undoes it.

    \b
    Example:
      mailgres templates retire welcome_user
    """
    with database.connect(database_url) as connection:
        changed = stored.retire(connection, name)
        if dry_run:
            connection.rollback()
    click.echo(f"{name} is retired." if changed else f"{name} was retired before.")


def _find_draft(name: str, version: int | None, database_url: str | None) -> Draft:
    path = Path(name)
    if path.suffix in {".html", ".txt"} and path.is_file():
        return read_templates([path])[0]
    with database.connect(database_url) as connection:
        return stored.read(connection, stored.find(connection, name), version)


def _as_json(one: stored.Stored) -> dict[str, Any]:
    return {
        "name": one.name,
        "active_version": one.active_version,
        "versions": one.versions,
        "locales": one.locales,
        **one.settings,
        "retired_at": one.retired_at.isoformat() if one.retired_at else None,
        "updated_at": one.updated_at.isoformat(),
    }
