"""`mailgres templates`: push, pull, list, show, preview and retire templates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import harmless, lines, print_rows
from mailgres.cli.support.payload import read_payload
from mailgres.templates import Draft, Template, read_templates, stored, write_templates

_HEAD = ("template", "version", "languages", "needs", "description")


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
    with operator(database_url, dry_run=dry_run) as asked:
        pushed = [stored.push(asked.connection, draft) for draft in drafts]
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
    with operator(database_url) as asked:
        found = [one for one in stored.list_templates(asked.connection) if one.retired_at is None]
        drafts = [stored.read(asked.connection, one) for one in found]
    for path in write_templates(drafts, directory, force=force):
        click.echo(path)
    click.echo(f"{len(drafts)} templates are in {directory}.")


@templates.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the templates.

    \b
    Examples:
      mailgres templates list
      mailgres templates list --json | jq -r '.[].name'
    """
    with operator(database_url) as asked:
        found = [_as_json(one) for one in stored.list_templates(asked.connection)]
    print_rows(found, _HEAD, _row, json_=as_json_)


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
    with operator(database_url) as asked:
        found = stored.find(asked.connection, name)
        draft = stored.read(asked.connection, found, version)
    shown = version or found.active_version
    state = "active" if shown == found.active_version else f"{found.active_version} is active"
    retired = f", retired since {found.retired_at:%Y-%m-%d %H:%M}" if found.retired_at else ""
    click.echo(f"{name}, version {shown} ({state}){retired}")
    for key, value in found.settings.items():
        if value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(harmless(f"{key}: {text}"))
    for locale, content in draft.contents.items():
        for part, source in content.parts().items():
            click.echo(lines(f"\n--- {locale}, {part}\n{source}"))


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
        html = rendered.html or ""
        # In a file it is as it is sent: click takes colours out of texts, not out of bytes.
        click.echo(lines(html) if sys.stdout.isatty() else html.encode())
        return
    click.echo(harmless(f"Subject: {rendered.subject}"))
    click.echo(lines(f"\n{rendered.text}"), nl=False)
    if rendered.html is not None:
        click.echo(lines(f"\n--- html\n{rendered.html}"))


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
    with operator(database_url, dry_run=dry_run) as asked:
        changed = stored.retire(asked.connection, name)
    click.echo(f"{name} is retired." if changed else f"{name} was retired before.")


def _find_draft(name: str, version: int | None, database_url: str | None) -> Draft:
    path = Path(name)
    if path.suffix in {".html", ".txt"} and path.is_file():
        return read_templates([path])[0]
    with operator(database_url) as asked:
        return stored.read(asked.connection, stored.find(asked.connection, name), version)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    version = "retired" if one["retired_at"] else str(one["active_version"])
    needs = ", ".join(one["required_variables"]) or "-"
    return one["name"], version, " ".join(one["locales"]), needs, str(one["description"])


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
