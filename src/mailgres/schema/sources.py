"""Read `sql/`: which statements belong to revisions, and which objects are repeatable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from mailgres import resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MACHINERY = "25_schema"
"""The functions of this directory compare and replace the others."""

_TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|(\$\w*\$).*?\1|\bBEGIN ATOMIC\b.*?\nEND(?=;)|;", re.DOTALL
)
_HIDDEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_MAKES = re.compile(
    r"CREATE (?:OR REPLACE )?(?P<constraint>CONSTRAINT )?(?P<kind>FUNCTION|VIEW|TRIGGER)"
    r" (?P<name>[\w.]+)"
)
_TABLE = re.compile(r"\bON (?P<table>\w+\.\w+)")
_COMMENT = re.compile(r"COMMENT ON (?P<kind>[A-Z]+) (?P<name>[\w.]+(?:\([^)]*\))?)\s+IS\b")
_COMMENTED = {"COLUMN", "DOMAIN", "FUNCTION", "SCHEMA", "SEQUENCE", "TABLE", "TYPE", "VIEW"}
_DEFAULT = re.compile(r" (?:DEFAULT\b|=)")
_MODE = re.compile(r"\A(IN|INOUT|OUT|VARIADIC) ")
_CALL = re.compile(r"\b((?:mailgres|public)\.\w+)\(")
_ORDER = {"function": 0, "view": 0, "trigger": 1, "comment": 2}


@dataclass(frozen=True)
class Wanted:
    """An object that is not part of a revision, and the statement that makes or replaces it."""

    kind: str
    name: str
    statement: str

    @property
    def body(self) -> str:
        """The body of a function, between its dollar quotes."""
        return self.statement.split("$$")[1]


@dataclass(frozen=True)
class Statement:
    """One statement of `sql/`."""

    file: str
    text: str

    @cached_property
    def wanted(self) -> Wanted | None:
        """The repeatable object that it makes, if any."""
        return _wanted(self.text)


class Sources:
    """The statements of a directory such as `sql/`."""

    def __init__(self, directory: Path | None = None) -> None:
        root = directory or resources.sql_directory()
        self.digest = resources.sql_digest(root)
        self.statements = tuple(
            Statement(path.relative_to(root).as_posix(), text)
            for path in resources.sql_files(root)
            for text in split(path.read_text(encoding="utf-8"))
        )

    @cached_property
    def wanted(self) -> tuple[Wanted, ...]:
        """The repeatable objects: functions and views in the order of `sql/`, then the rest."""
        found = [each.wanted for each in self.statements if each.wanted]
        signatures = {plain(each.name): each.name for each in found if each.kind == "function"}
        found = [_with_signature(each, signatures) for each in found]
        return tuple(sorted(found, key=lambda each: _ORDER[each.kind]))

    @cached_property
    def versioned(self) -> tuple[Statement, ...]:
        """The statements of revisions: all others, and the functions that those call."""
        functions = {
            plain(each.wanted.name): each
            for each in self.statements
            if each.wanted and each.wanted.kind == "function"
        }
        found = {each for each in self.statements if each.wanted is None}
        new = found
        while new:
            called = {name for each in new for name in _CALL.findall(_HIDDEN.sub("", each.text))}
            new = {functions[name] for name in called & functions.keys()} - found
            found |= new
        return tuple(each for each in self.statements if each in found)

    @cached_property
    def machinery(self) -> tuple[Wanted, ...]:
        """The functions that compare and replace the others."""
        own = (each.wanted for each in self.statements if each.file.startswith(MACHINERY))
        return tuple(each for each in own if each and each.kind == "function")

    def names(self, *kinds: str, schema: str) -> list[str]:
        """Return the names of the functions or views of a schema, without it."""
        start = f"{schema}."
        return [
            each.name.removeprefix(start)
            for each in self.wanted
            if each.kind in kinds and each.name.startswith(start)
        ]

    def tables(self, schema: str) -> list[str]:
        """Return the names of the tables of a schema, without it."""
        made = (re.match(r"CREATE TABLE (\w+)\.(\w+)", each.text) for each in self.statements)
        return [found[2] for found in made if found and found[1] == schema]


@cache
def own() -> Sources:
    """Return `sql/` of this package."""
    return Sources()


def plain(name: str) -> str:
    """Return the name of an object without the types of its arguments."""
    return name.partition("(")[0]


def split(text: str) -> Iterator[str]:
    """Return the statements of a file; quotes and comments hide semicolons."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield _without_comments(text[start : token.end()])
            start = token.end()


def _without_comments(statement: str) -> str:
    """Return a statement without the comments before it."""
    return re.sub(r"\A(?:\s|--[^\n]*\n)+", "", statement)


def _wanted(text: str) -> Wanted | None:
    if comment := _COMMENT.match(text):
        if comment["kind"] not in _COMMENTED:
            raise ValueError(
                f"sql/ has a comment on a {comment['kind']}: find_objects() knows none"
            )
        return Wanted("comment", f"{comment['kind']} {comment['name']}", text)
    found = _MAKES.match(text)
    if found is None:
        return None
    kind, name = found["kind"].lower(), found["name"]
    if kind == "trigger":
        table = _TABLE.search(text)
        if table is None:
            raise ValueError(f"the trigger {name} names no table")
        name = f"{table['table']}.{name}"
    if kind == "function":
        name += f"({', '.join(_argument_types(text[found.end() :]))})"
    # There is no OR REPLACE for a constraint trigger.
    replace = "" if found["constraint"] else "OR REPLACE "
    statement = re.sub(r"\ACREATE (?:OR REPLACE )?", f"CREATE {replace}", text)
    return Wanted(kind, name, statement)


def _with_signature(wanted: Wanted, signatures: Mapping[str, str]) -> Wanted:
    """Return a comment on a function with its arguments: others may have one of the same name."""
    if not (wanted.kind == "comment" and wanted.name.startswith("FUNCTION ")):
        return wanted
    name = signatures[plain(wanted.name).removeprefix("FUNCTION ")]
    statement = _COMMENT.sub(f"COMMENT ON FUNCTION {name} IS", wanted.statement, count=1)
    return Wanted("comment", f"FUNCTION {name}", statement)


def _argument_types(text: str) -> Iterator[str]:
    """Return the types of the arguments that identify a function, as they are written."""
    for argument in _arguments(_HIDDEN.sub("", text)):
        mode = _MODE.match(argument)
        if mode and mode[1] == "OUT":
            continue
        named = _DEFAULT.split(argument[mode.end() if mode else 0 :])[0]
        yield named.partition(" ")[2]


def _arguments(text: str) -> Iterator[str]:
    """Return the arguments in the brackets at the start of a text."""
    depth, start = 0, 1
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 or (depth == 1 and character == ","):
            if argument := " ".join(text[start:place].split()):
                yield argument
            start = place + 1
        if depth == 0:
            return
