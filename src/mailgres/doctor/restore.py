"""The SQL that makes functions, indexes, triggers and views anew as `sql/` has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg

from mailgres import database, resources
from mailgres.doctor.finding import QUERIES, DoctorContext
from mailgres.doctor.schema import RESHAPED, differences, expected, plain
from mailgres.errors import MailgresError
from mailgres.migrate import check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mailgres.settings import Settings

_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|(\$\w*\$).*?\1|;", re.DOTALL)
_CREATES = re.compile(
    r"CREATE (?:OR REPLACE )?(?:UNIQUE |CONSTRAINT )?(?P<kind>FUNCTION|VIEW|INDEX|TRIGGER)"
    r" (?P<name>[\w.]+)(?:.*?\bON (?P<table>\w+\.\w+))?",
    re.DOTALL,
)
_COMMENTS = re.compile(
    r"(?P<head>COMMENT ON (?P<kind>FUNCTION|VIEW|COLUMN) (?P<name>[\w.]+)(?:\([^)]*\))?)\s+IS\b"
)


_REMEMBER = "SELECT mailgres.remember_objects();\n"
_REMEMBERING = {
    f"function mailgres.{name}" for name in ("remember_objects", "rights", "intended_grants")
}


@dataclass(frozen=True)
class Anew:
    """The statements that take an object of ours away and make it."""

    drop: str
    make: str
    replaces: bool = False
    """Whether it may be made over the one that is there."""


def restoring_sql(settings: Settings) -> str:
    """One transaction that undoes what differs; what it cannot undo is a comment in it."""
    check(settings.database_url)
    try:
        with database.connect(settings.database_url) as connection:
            connection.execute(QUERIES["limits"])
            context = DoctorContext(settings, connection)
            found = differences(context)
            rows = context.ask("dependents", names=list(expected()))
    except psycopg.Error as error:
        raise MailgresError(
            f"The schema could not be read: {database.first_line(error)}",
            "Connect as the owner, or as a member of mailgres_operator.",
        ) from None
    dependents: dict[str, list[str]] = {}
    for row in rows:
        dependents.setdefault(row["object"], []).append(row["dependent"])
    return _script(found, dependents)


def _script(found: dict[str, str], dependents: Mapping[str, list[str]]) -> str:
    known = dict(_definitions())
    strays = _strays(found, known)
    wrong = {name: how for name, how in found.items() if how != "added" or name in strays}
    if not wrong:
        return "-- Nothing differs.\n"
    by_hand, drops, makes = [], set[str](), set[str]()
    for name, how in wrong.items():
        going = _going(name, how, known, dependents)
        others = sorted(going - known.keys() - strays)
        if others:
            why = "" if others == [name] else f", and needed by {', '.join(others)}"
            by_hand.append(f"-- by hand: {name} is {how}{why}\n")
        else:
            drops |= going
            makes |= {name, *going} - strays
    # in the order of sql/, in which one builds on the other
    gone = [known[name].drop for name in reversed(known) if name in drops]
    gone += [_drop_function(name) for name in sorted(strays & drops)]
    parts = [
        f"-- {name} is {_how(name, wrong)}\n{known[name].make}\n" for name in known if name in makes
    ]
    end = "SELECT mailgres.secure();\nCOMMIT;\n"
    return "".join(
        ["BEGIN;\nSELECT mailgres.remember_objects();\n\n", *gone, "\n", *parts, *by_hand, end]
    )


def _strays(found: Mapping[str, str], known: Mapping[str, Anew]) -> set[str]:
    """Functions by a name of ours in our own schema, where nobody else has any business."""
    ours = {plain(name) for name in known if name.startswith("function mailgres.")}
    return {name for name, how in found.items() if how == "added" and plain(name) in ours}


def _going(
    name: str, how: str, known: Mapping[str, Anew], dependents: Mapping[str, list[str]]
) -> set[str]:
    """What has to be dropped before an object is made: nothing, or it and all that needs it."""
    if name in known and how != RESHAPED and (known[name].replaces or how == "missing"):
        return set()
    going, new = set[str](), {name}
    while new:
        going |= new
        new = {each for one in new for each in dependents.get(one, ())} - going
    return going


def _how(name: str, wrong: Mapping[str, str]) -> str:
    return wrong.get(name, "made anew, as it needs what is")


def _definitions() -> Iterator[tuple[str, Anew]]:
    """Every object that can be made anew, in the order of `sql/`, and how."""
    signatures = {plain(name): name for name in expected()}
    found: dict[str, Anew] = {}
    for path in resources.sql_files():
        for statement in split(path.read_text(encoding="utf-8")):
            if match := _CREATES.match(statement):
                name, anew = _anew(match, statement, signatures)
                found[name] = anew
            elif match := _COMMENTS.match(statement):
                _add_comment(found, match, statement, signatures)
    return iter((name, anew) for name, anew in found.items() if name in expected())


def _anew(match: re.Match[str], statement: str, signatures: Mapping[str, str]) -> tuple[str, Anew]:
    kind, name, table = match["kind"].lower(), match["name"], match["table"]
    if kind == "index":
        name = f"{table.partition('.')[0]}.{name}"
        return f"index {name}", Anew(f"DROP INDEX IF EXISTS {name};\n", statement + "\n")
    if kind == "trigger":
        drop = f"DROP TRIGGER IF EXISTS {name} ON {table};\n"
        return f"trigger {table}.{name}", Anew(drop, statement + "\n")
    full = signatures.get(f"{kind} {name}", f"{kind} {name}")
    make = re.sub(r"\ACREATE (?:OR REPLACE )?", "CREATE OR REPLACE ", statement) + "\n"
    drop = f"DROP VIEW IF EXISTS {name};\n" if kind == "view" else _drop_function(full)
    return full, Anew(drop, make, replaces=True)


def _drop_function(name: str) -> str:
    return f"DROP ROUTINE IF EXISTS {name.removeprefix('function ')};\n"


def _add_comment(
    found: dict[str, Anew], match: re.Match[str], statement: str, signatures: Mapping[str, str]
) -> None:
    """What is dropped loses its comments."""
    kind, name = match["kind"].lower(), match["name"]
    of = f"view {name.rpartition('.')[0]}" if kind == "column" else f"{kind} {name}"
    full = signatures.get(of, of)
    if full not in found:
        return
    if kind == "function":
        signature = full.removeprefix("function ")
        statement = f"COMMENT ON FUNCTION {signature} {statement[match.end('head') :].lstrip()}"
    found[full] = replace(found[full], make=f"{found[full].make}{statement}\n")


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
