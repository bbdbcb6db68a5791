"""The SQL that makes functions, indexes, triggers and views anew as `sql/` has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg

from mailgres import database, resources
from mailgres.doctor.finding import QUERIES, Patient
from mailgres.doctor.schema import RESTORABLE, differences
from mailgres.errors import MailgresError
from mailgres.migrate import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.settings import Settings

_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|(\$\w*\$).*?\1|;", re.DOTALL)
_CREATES = re.compile(
    r"CREATE (?:OR REPLACE )?(?:UNIQUE |CONSTRAINT )?(?P<kind>FUNCTION|VIEW|INDEX|TRIGGER)"
    r" (?P<name>[\w.]+)(?:.*?\bON (?P<table>\w+\.\w+))?",
    re.DOTALL,
)


def restoring_sql(settings: Settings) -> str:
    """One transaction that undoes what differs; what it cannot undo is a comment in it."""
    check(settings.database_url)
    try:
        with database.connect(settings.database_url) as connection:
            connection.execute(QUERIES["limits"])
            found = differences(Patient(settings, connection))
    except psycopg.Error as error:
        raise MailgresError(
            f"The schema could not be read: {database.first_line(error)}",
            "Connect as the owner, or as a member of mailgres_operator.",
        ) from None
    return _script({name: how for name, how in found.items() if how != "added"})


def _script(found: dict[str, str]) -> str:
    if not found:
        return "-- Nothing differs.\n"
    known = dict(_definitions())
    by_hand = [f"-- by hand: {name} is {how}\n" for name, how in found.items() if name not in known]
    # in the order of sql/, in which one builds on the other
    parts = [f"-- {name} is {found[name]}\n{known[name]}\n\n" for name in known if name in found]
    end = "SELECT mailgres.secure();\nCOMMIT;\n"
    return "".join(["BEGIN;\n\n", *parts, *by_hand, end])


def _definitions() -> Iterator[tuple[str, str]]:
    """Every object that can be made anew, and the statements that do so."""
    for path in resources.sql_files():
        for statement in split(path.read_text(encoding="utf-8")):
            if match := _CREATES.match(statement):
                yield from _anew(match, statement)


def _anew(match: re.Match[str], statement: str) -> Iterator[tuple[str, str]]:
    kind, name, table = match["kind"].lower(), match["name"], match["table"]
    schema = (table or name).partition(".")[0]
    if kind not in RESTORABLE:
        return
    if kind == "index":
        yield f"index {schema}.{name}", f"DROP INDEX IF EXISTS {schema}.{name};\n{statement}"
    elif kind == "trigger":
        drop = f"DROP TRIGGER IF EXISTS {name} ON {table};\n"
        yield f"trigger {table}.{name}", drop + statement
    else:
        yield f"{kind} {name}", statement.replace("CREATE ", "CREATE OR REPLACE ", 1)


def split(text: str) -> Iterator[str]:
    """The statements of a file; quotes and comments hide semicolons."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield _without_comments(text[start : token.end()])
            start = token.end()


def _without_comments(statement: str) -> str:
    """A statement without the comments before it."""
    return re.sub(r"\A(?:\s|--[^\n]*\n)+", "", statement)
