"""`mailgres templates`: push, pull, compare, show, preview, roll back, retire templates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import count, lines, print_rows
from mailgres.cli.support.payload import read_payload
from mailgres.cli.support.tables import Column, harmless
from mailgres.templates import Draft, Template, read_templates, stored, write_templates
from mailgres.templates.differences import differences

if TYPE_CHECKING:
    import psycopg

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_HEAD = ("template", "version", "languages", "needs", Column("description", below="{}"))
_name = click.argument("name", shell_complete=names_of("templates"))


@click.group(cls=Group)
def templates() -> None:
    """Keep templates in files and push them to the database.

    A template is a file such as welcome_user.html: settings and subject in front matter, then the
    HTML part. welcome_user.txt is its text part, welcome_user.pt.html a translation.
    """


@templates.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--check", is_flag=True, help="Only check the files; this needs no database, and suits CI."
)
@dry_run_option
@database_url_option
def push(*, paths: tuple[Path, ...], check: bool, dry_run: bool, database_url: str | None) -> None:
    """Activate the templates in directories or files.

    All templates are checked first, and all are written or none. An unchanged template gets no new
    version. --check compiles every part and renders it with its sample; whether the routes and
    retry policies that it names exist, only the database knows.

    \b
    Examples:
      mailgres templates push templates/
      mailgres templates push templates/ --check
      mailgres templates push templates/welcome_user.html --dry-run
    """
    drafts = read_templates(list(paths))
    if check:
        verb = "is" if len(drafts) == 1 else "are"
        click.echo(f"{count(len(drafts), 'template')} {verb} valid.")
        return
    with operator(database_url, dry_run=dry_run) as asked:
        pushed = [stored.push(asked.connection, draft) for draft in drafts]
    for each in pushed:
        click.echo(f"{each.name}: {each.change} (version {each.version})")


@templates.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
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
    verb = "is" if len(drafts) == 1 else "are"
    click.echo(f"{count(len(drafts), 'template')} {verb} in {directory}.")


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
@_name
@click.option("--version", type=click.IntRange(min=1), help="This version, not the active one.")
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
@_name
@click.option(
    "--payload", metavar="JSON", help="JSON, @FILE or - (standard input). Default: the sample."
)
@click.option("--locale", help="The language, instead of the payload's.")
@click.option("--version", type=click.IntRange(min=1), help="This version, not the active one.")
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
    """Render a template from the database or from a file, as the worker would.

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
        # A file gets exactly what is sent: click strips colours from text, not from bytes.
        click.echo(lines(html) if sys.stdout.isatty() else html.encode())
        return
    click.echo(harmless(f"Subject: {rendered.subject}"))
    click.echo(lines(f"\n{rendered.text}"), nl=False)
    if rendered.html is not None:
        click.echo(lines(f"\n--- html\n{rendered.html}"))


@templates.command()
@click.argument("what", metavar="NAME|PATH...", nargs=-1, required=True)
@click.option(
    "--version", type=click.IntRange(min=1), help="Compare with this version, not the active one."
)
@database_url_option
def diff(*, what: tuple[str, ...], version: int | None, database_url: str | None) -> None:
    """Compare files with the database, or two versions of a template.

    For a path, the lines with + are what a push would activate. For a name, they are the active
    version, compared with --version or with the version before. Exits with 1 if there is a
    difference.

    \b
    Examples:
      mailgres templates diff templates/
      mailgres templates diff templates/welcome_user.html --version 2
      mailgres templates diff welcome_user
      mailgres templates diff welcome_user --version 1
    """
    paths = [Path(one) for one in what if Path(one).exists()]
    names = [one for one in what if not Path(one).exists()]
    drafts = read_templates(paths) if paths else []
    found: list[str] = []
    with operator(database_url) as asked:
        for draft in drafts:
            found += _diff_file(asked.connection, draft, version)
        for name in names:
            found += _diff_versions(asked.connection, name, version)
    for line in found:
        click.echo(click.style(harmless(line), fg=_COLOURS.get(line[:1])))
    if found:
        sys.exit(1)
    click.echo("There is no difference.")


@templates.command()
@_name
@click.option(
    "--version", type=click.IntRange(min=1), help="Activate this version, not the one before."
)
@dry_run_option
@database_url_option
def rollback(*, name: str, version: int | None, dry_run: bool, database_url: str | None) -> None:
    """Activate an earlier version of a template, by default the one before.

    Emails that were attempted before keep the version of their first attempt. The variables that
    an email must have are those that the content of the version needs; other settings stay.
    `mailgres templates pull` brings the files back to it, too.

    \b
    Examples:
      mailgres templates rollback welcome_user
      mailgres templates rollback welcome_user --version 2 --dry-run
    """
    with operator(database_url, dry_run=dry_run) as asked:
        before, after = stored.rollback(asked.connection, name, version)
    same = " already" if before == after else f"; it was version {before}"
    click.echo(f"{name}: version {after} is active{same}")


@templates.command()
@_name
@dry_run_option
@database_url_option
def retire(*, name: str, dry_run: bool, database_url: str | None) -> None:
    """Accept no new emails for a template. Queued emails are sent; a push undoes it.

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


def _diff_file(connection: psycopg.Connection[Any], draft: Draft, version: int | None) -> list[str]:
    known = stored.list_templates(connection, draft.name)
    before = stored.read(connection, known[0], version) if known else None
    label = f"version {version or known[0].active_version}" if known else "not in the database"
    return differences(before, draft, (label, "file"))


def _diff_versions(
    connection: psycopg.Connection[Any], name: str, version: int | None
) -> list[str]:
    found = stored.find(connection, name)
    other = version or max((v for v in found.versions if v < found.active_version), default=None)
    if other is None:
        return []
    labels = (f"version {other}", f"version {found.active_version}")
    return differences(
        stored.read(connection, found, other), stored.read(connection, found), labels
    )


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
