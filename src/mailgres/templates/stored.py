"""Templates in the database."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from mailgres import queries
from mailgres.errors import InvalidTemplate, UnknownTemplate
from mailgres.sqlstates import from_database
from mailgres.templates.content import contents_from_json
from mailgres.templates.draft import SETTINGS, Draft, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mailgres.templates.content import Content

QUERIES = queries.load("templates/templates.sql")


@dataclass(frozen=True)
class Stored:
    """A template as the database has it, without its content."""

    name: str
    active_version: int
    versions: list[int]
    locales: list[str]
    settings: dict[str, Any]
    retired_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True)
class Pushed:
    """What pushing a template did."""

    name: str
    version: int
    change: str
    """`created`, `new version`, `settings` or `unchanged`."""


def load_contents(conn: psycopg.Connection[Any], name: str, version: int) -> dict[str, Content]:
    """Return the content of a version by locale; empty if there is no such version.

    Errors are the driver's: a worker has to know that the database is away, and the email is not at
    fault.
    """
    arguments = {"name": name, "version": version}
    with conn.cursor() as cursor:
        row = cursor.execute(QUERIES["template_contents"], arguments).fetchone()
    return contents_from_json(row[0] if row else None)


def push(conn: psycopg.Connection[Any], draft: Draft) -> Pushed:
    """Make a draft the active version of its template, in the connection's transaction."""
    defaults = {key: default for key, (_, default) in SETTINGS.items()}
    contents = {
        locale: {"subject": content.subject, "html": content.html, "text": content.text}
        for locale, content in draft.contents.items()
    }
    before = _value(conn, "template_row", {"name": draft.name})
    arguments = {
        "name": draft.name,
        "contents": Jsonb(contents),
        "settings": Jsonb(defaults | draft.settings),
        "default_locale": draft.default_locale,
    }
    version: int = _value(conn, "push_template", arguments)
    after = _value(conn, "template_row", {"name": draft.name})
    return Pushed(draft.name, version, _change(before, after))


def _change(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    if before is None:
        return "created"
    if before["active_version"] != after["active_version"]:
        return "new version"
    return "unchanged" if before == after else "settings"


def rollback(
    conn: psycopg.Connection[Any], name: str, version: int | None = None
) -> tuple[int, int]:
    """Activate an earlier version, by default the one before; return the old and the new one.

    The variables that emails must have are derived from the content of that version.
    """
    found = find(conn, name)
    if version is None:
        earlier = [each for each in found.versions if each < found.active_version]
        if not earlier:
            raise InvalidTemplate(
                f"{name!r} has no version before {found.active_version}, the active one",
                f"Its versions are: {', '.join(map(str, found.versions))}.",
            )
        version = earlier[-1]
    required = read(conn, found, version).derived_variables()
    arguments = {"name": name, "version": version, "required": required}
    before: int = _value(conn, "activate_version", arguments)
    return before, version


def retire(conn: psycopg.Connection[Any], name: str) -> bool:
    """Retire a template: it takes no new emails; False if it was retired before."""
    find(conn, name)
    return bool(_value(conn, "retire_template", {"name": name}))


def list_templates(conn: psycopg.Connection[Any], name: str | None = None) -> list[Stored]:
    """Return all templates, or the one of that name."""
    with _translated(), conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(QUERIES["list_templates"], {"name": name}).fetchall()
    return [
        Stored(
            row["template_type"],
            row["active_version"],
            row["versions"],
            row["locales"],
            {key: row[key] for key in SETTINGS},
            row["retired_at"],
            row["updated_at"],
        )
        for row in rows
    ]


def find(conn: psycopg.Connection[Any], name: str) -> Stored:
    """Return the template of that name, or raise an error that names the nearest."""
    if found := list_templates(conn, name):
        return found[0]
    known = [each.name for each in list_templates(conn)]
    raise UnknownTemplate(f"there is no template {name!r}", suggestion(name, known))


def read(conn: psycopg.Connection[Any], stored: Stored, version: int | None = None) -> Draft:
    """Return a template with the content of its active version, or of another."""
    wanted = version or stored.active_version
    contents = load_contents(conn, stored.name, wanted)
    if not contents:
        listed = ", ".join(map(str, stored.versions)) or "none"
        raise UnknownTemplate(
            f"{stored.name!r} has no version {wanted}", f"Its versions are: {listed}."
        )
    return Draft(stored.name, contents, stored.settings)


def _value(conn: psycopg.Connection[Any], query: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - the query's
    with _translated(), conn.cursor() as cursor:
        row = cursor.execute(QUERIES[query], arguments).fetchone()
    return row[0] if row else None


@contextmanager
def _translated() -> Iterator[None]:
    """Raise our error instead of the driver's, where there is one."""
    try:
        yield
    except psycopg.Error as error:
        ours = from_database(error)
        if ours is None:
            raise
        raise ours from error
