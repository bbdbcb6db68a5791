"""Check that the schema is as the migrations made it.

Functions, views, triggers and comments are compared with `sql/`, as a migration does it
(`mailgres.schema`). What the revisions make is in `schema.json`, a hash for every table, column,
constraint, index and domain, written by `make docs`.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailgres.doctor.finding import Check, Finding
from mailgres.schema import objects
from mailgres.schema.sources import own, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mailgres.doctor.finding import DoctorContext

EXPECTED = Path(__file__).with_name("schema.json")
NAME, INDEXES, PUBLICATIONS = "schema-drift", "missing-indexes", "publications"
REPEATABLE = ("comment", "function", "trigger", "view")
SHOWN = 10

_NOISE = re.compile(r"[\s()]+")
_STATES = {"outdated": "changed", "obsolete": "left from an earlier version"}
"""States of an object that another word describes better."""


@cache
def expected() -> dict[str, str]:
    """Return the hash of everything that the revisions make, by kind and name."""
    found: dict[str, str] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def relations() -> list[str]:
    """Return the names of our tables and views in public."""
    return own().tables("public") + own().names("view", schema="public")


def functions() -> list[str]:
    """Return the names of our functions in public; an application may have overloads of them."""
    return [plain(name) for name in own().names("function", schema="public")]


def hashes(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the hashes of the catalog, without the brackets in which versions differ."""
    return {row["object"]: _hash(row["definition"]) for row in rows}


def _hash(definition: str) -> str:
    return hashlib.sha256(_NOISE.sub("", definition).encode()).hexdigest()[:16]


def differences(context: DoctorContext) -> dict[str, str]:
    """Return the objects that differ from the migrations: missing, changed or added."""
    wanted = expected()
    there = hashes(context.ask("objects", relations=relations()))
    there = _by_our_names(there, wanted)
    found = dict.fromkeys(wanted.keys() - there.keys(), "missing")
    found |= dict.fromkeys(there.keys() - wanted.keys(), "added")
    both = wanted.keys() & there.keys()
    found |= {name: "changed" for name in both if wanted[name] != there[name]}
    return dict(sorted((found | _repeatable(context)).items()))


def _repeatable(context: DoctorContext) -> dict[str, str]:
    """Return functions, views, triggers and comments that differ, or were added by others."""
    rows = context.ask("repeatable_objects", **objects.parameters(own().wanted))
    states = {row["object"]: row["state"] for row in rows}
    found = {
        name: _STATES.get(state, state)
        for name, state in states.items()
        if state not in {"same", "moved"}
    }
    found = {name: how for name, how in found.items() if _commented(name) not in found}
    names = context.ask("names", relations=relations(), functions=functions())
    added = {row["object"] for row in names} - states.keys()
    return found | dict.fromkeys(added, "added")


def _commented(name: str) -> str | None:
    """Return the function or view that a comment, or one on its columns, belongs to."""
    kind, _, rest = name.partition(" ")
    if kind != "comment":
        return None
    what, _, of = rest.partition(" ")
    return f"view {of.rpartition('.')[0]}" if what == "COLUMN" else f"{what.lower()} {of}"


def _by_our_names(there: dict[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes under the names that our constraints would have.

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


def drift(context: DoctorContext) -> Iterator[Finding]:
    """Check that nothing is missing or changed; report what was added."""
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
    """Check that every index exists that the queue relies on."""
    for name, how in differences(context).items():
        if name.startswith("index ") and how != "added":
            yield Finding(INDEXES, "error", f"{name} is {how}", context.restore)


def _fix(context: DoctorContext, name: str) -> str:
    if name.startswith(REPEATABLE):
        return context.restore
    table = ".".join(name.split(" ", 1)[1].split(".")[:2])
    return f"mailgres migrate --sql | grep -A 90 'CREATE TABLE {table} '  # then ALTER it by hand"


def unlogged(context: DoctorContext) -> Iterator[Finding]:
    """Check that no table is unlogged, which would lose its rows in a crash."""
    for row in context.ask("unlogged", relations=relations()):
        yield Finding(
            "durability",
            "error",
            f"{row['table']} is unlogged: a crash empties it",
            context.psql(f"ALTER TABLE {row['table']} SET LOGGED"),
        )


def identities(context: DoctorContext) -> Iterator[Finding]:
    """Check that every table has a replica identity: without one, publishing blocks changes."""
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
