"""The schema: whether everything is as the migrations made it.

What they make is in `schema.json`, a hash for every object, written by `make docs`.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailgres.doctor.finding import Check, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mailgres.doctor.finding import DoctorContext

EXPECTED = Path(__file__).with_name("schema.json")
NAME, INDEXES, PUBLICATIONS = "schema-drift", "missing-indexes", "publications"
RESTORABLE = ("function", "index", "trigger", "view")
"""What can be made anew as it was, without touching a row."""
RESHAPED = "changed in its columns, arguments or result"
"""How that is which CREATE OR REPLACE cannot bring back."""
SHOWN = 10

_CAST_NAME = re.compile(
    r"(?P<cast>::(?P<type>[\w.]+(?: with(?:out)? time zone| precision| varying)?)(?:\[\])*)"
    r" AS (?P<name>\w+)"
)
_NAME_OF_TYPE = {
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "double precision": "float8",
    "character varying": "varchar",
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
}
"""The name that PostgreSQL gives a column which is a cast and has none."""
_QUALIFIER = re.compile(r"\b\w+\.(?=\w)")
_NOISE = re.compile(r"[\s()]+")


@cache
def expected() -> dict[str, str]:
    """The hash of every object of ours, by kind and name."""
    found: dict[str, str] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def relations() -> list[str]:
    """The names of our tables and views in public."""
    kinds = ("table public.", "view public.")
    return [name.partition(".")[2] for name in expected() if name.startswith(kinds)]


def signatures() -> list[str]:
    """The names of our functions in public, with the types of their arguments."""
    return [name.partition(".")[2] for name in expected() if name.startswith("function public.")]


def functions() -> list[str]:
    """The names of our functions in public; an application may have others of the same name."""
    return [plain(signature) for signature in signatures()]


def plain(name: str) -> str:
    """The name of an object without the types of its arguments."""
    return name.partition("(")[0]


def hashes(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the catalog says, as it is compared: the definition, and the shape where it has one."""
    found = {}
    for row in rows:
        shape = f"{_hash(row['shape'], 'expression')}-" if row["shape"] else ""
        found[row["object"]] = shape + _hash(row["definition"], row["style"])
    return found


def _hash(definition: str, style: str) -> str:
    """The hash of a definition, the same whichever version of PostgreSQL wrote it out.

    A source is as it was written; versions differ in brackets, and in a query also in qualifiers.
    A query that was dumped and restored has a name where it had none before: that of the type.
    """
    if style == "query":
        definition = _CAST_NAME.sub(_without_given_name, definition)
        definition = _QUALIFIER.sub("", definition)
    if style != "source":
        definition = _NOISE.sub("", definition)
    return hashlib.sha256(definition.encode()).hexdigest()[:16]


def _without_given_name(found: re.Match[str]) -> str:
    """A cast with its alias, unless that is the one which PostgreSQL gives."""
    kind = found["type"]
    given = _NAME_OF_TYPE.get(kind, kind.rpartition(".")[2])
    return found["cast"] if found["name"] == given else found[0]


def differences(context: DoctorContext) -> dict[str, str]:
    """What is not as it should be: missing, changed or added, by object."""
    wanted = expected()
    there = hashes(context.ask("objects", relations=relations(), functions=functions()))
    there = _by_our_names(there, wanted)
    found = dict.fromkeys(wanted.keys() - there.keys(), "missing")
    found |= dict.fromkeys(there.keys() - wanted.keys(), "added")
    both = wanted.keys() & there.keys()
    found |= {
        name: _change(wanted[name], there[name]) for name in both if wanted[name] != there[name]
    }
    return dict(sorted(found.items()))


def _by_our_names(there: dict[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What is there, with the names that our constraints would have.

    A table that was renamed keeps the names of its keys, so ours got others (email_queue_pkey1).
    """
    free = [name for name in wanted if name.startswith("constraint ") and name not in there]
    for name in free:
        table = name.rpartition(".")[0]
        twins = (
            other
            for other, hash_ in there.items()
            if other not in wanted and other.rpartition(".")[0] == table and hash_ == wanted[name]
        )
        if twin := next(twins, None):
            there[name] = there.pop(twin)
    return there


def _change(wanted: str, there: str) -> str:
    same = "-" not in wanted or wanted.partition("-")[0] == there.partition("-")[0]
    return "changed" if same else RESHAPED


def drift(context: DoctorContext) -> Iterator[Finding]:
    """Nothing is missing or changed, and what was added is named."""
    found = differences(context)
    for name, how in found.items():
        if not name.startswith("index ") and how != "added":
            yield Finding(NAME, "error", f"{plain(name)} is {how}", _fix(context, name))
    added = [name for name, how in found.items() if how == "added"]
    if added:
        more = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
        listed = ", ".join(added[:SHOWN]) + more
        yield Finding(NAME, "info", f"not of mailgres: {listed}")


def indexes(context: DoctorContext) -> Iterator[Finding]:
    """Every index that the queue relies on is there."""
    for name, how in differences(context).items():
        if name.startswith("index ") and how != "added":
            yield Finding(INDEXES, "error", f"{name} is {how}", context.restore)


def _fix(context: DoctorContext, name: str) -> str:
    if name.startswith(RESTORABLE):
        return context.restore
    table = ".".join(name.split(" ", 1)[1].split(".")[:2])
    return f"mailgres migrate --sql | grep -A 90 'CREATE TABLE {table} '  # then ALTER it by hand"


def unlogged(context: DoctorContext) -> Iterator[Finding]:
    """No table loses its rows in a crash."""
    for row in context.ask("unlogged", relations=relations()):
        yield Finding(
            "durability",
            "error",
            f"{row['table']} is unlogged: a crash empties it",
            context.psql(f"ALTER TABLE {row['table']} SET LOGGED"),
        )


def identities(context: DoctorContext) -> Iterator[Finding]:
    """Every table can be published: one without a replica identity cannot be changed any more."""
    for row in context.ask("without_identity", relations=relations()):
        stops = " and is published: rows cannot be updated or deleted" if row["published"] else ""
        wanted = "DEFAULT" if row["has_key"] else "FULL"
        yield Finding(
            PUBLICATIONS,
            "error" if row["published"] else "warning",
            f"{row['table']} has no replica identity{stops}",
            context.psql(f"ALTER TABLE {row['table']} REPLICA IDENTITY {wanted}"),
        )


CHECKS = (
    Check(NAME, drift, "everything is as the migrations made it"),
    Check(INDEXES, indexes, "all are there"),
    Check("durability", unlogged, "every table is logged"),
    Check(PUBLICATIONS, identities, "every table has a replica identity"),
)
