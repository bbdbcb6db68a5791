"""Write the SQL that restores functions, views, triggers, comments and indexes as in `sql/`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg

from mailgres import database, migrate, resources
from mailgres.doctor.finding import QUERIES, DoctorContext
from mailgres.doctor.schema import REPEATABLE, differences
from mailgres.errors import MailgresError
from mailgres.schema.sources import own, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mailgres.settings import Settings

_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (?P<name>\w+) ON (?P<schema>\w+)\.\w+")
_REPLACE = """\
SELECT mailgres.replace_objects(r.objects) AS replaced
FROM mailgres.schema_releases r WHERE r.is_current;
"""


def restoring_sql(settings: Settings) -> str:
    """Return one transaction that restores what differs; comments name what it cannot restore."""
    status = migrate.status(settings.database_url)
    if not status.is_current:
        raise migrate.not_migrated(database.describe(settings.database_url), status)
    try:
        with database.connect(settings.database_url) as connection:
            connection.execute(QUERIES["limits"])
            found = differences(DoctorContext(settings, connection))
    except psycopg.Error as error:
        raise MailgresError(
            f"The schema could not be read: {database.first_line(error)}",
            "Connect as the owner, or as a member of mailgres_operator.",
        ) from None
    return _script(found)


def _script(found: Mapping[str, str]) -> str:
    strays = _strays(found)
    wrong = {name: how for name, how in found.items() if how != "added" or name in strays}
    if not wrong:
        return "-- Nothing differs.\n"
    indexes = dict(_indexes())
    parts = [f"-- {name} is {how}\n" for name, how in wrong.items()]
    parts += ["BEGIN;\n", _before(), "\n"]
    parts += [f"DROP ROUTINE {name.removeprefix('function ')};\n" for name in sorted(strays)]
    for name, how in wrong.items():
        if name in indexes:
            drop = f"DROP INDEX {name.removeprefix('index ')};\n" if how == "changed" else ""
            parts.append(f"{drop}{indexes[name]}\n")
        elif not name.startswith(REPEATABLE):
            parts.append(f"-- by hand: {name} is {how}\n")
    return "".join([*parts, _machinery(wrong), _REPLACE, "COMMIT;\n"])


def _before() -> str:
    return (resources.migrations_directory() / "before.sql").read_text(encoding="utf-8")


def _machinery(wrong: Mapping[str, str]) -> str:
    """Return the functions that replace the others, if one of them differs."""
    names = {plain(name) for name in wrong}
    differs = any(f"function {plain(each.name)}" in names for each in own().machinery)
    return "\n".join(each.statement for each in own().machinery) + "\n" if differs else ""


def _strays(found: Mapping[str, str]) -> set[str]:
    """Return overloads of our functions in our own schema, where no other functions belong."""
    ours = {plain(name) for name in own().names("function", schema="mailgres")}
    return {
        name
        for name, how in found.items()
        if how == "added" and plain(name).removeprefix("function mailgres.") in ours
    }


def _indexes() -> Iterator[tuple[str, str]]:
    for statement in own().statements:
        if found := _INDEX.match(statement.text):
            yield f"index {found['schema']}.{found['name']}", statement.text
