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

    from mailgres.doctor.finding import Patient

EXPECTED = Path(__file__).with_name("schema.json")
NAME, INDEXES = "schema-drift", "missing-indexes"
RESTORABLE = ("function", "index", "trigger", "view")
"""What can be made anew as it was, without touching a row."""
SHOWN = 10

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


def functions() -> list[str]:
    """The names of our functions in public."""
    return [name.partition(".")[2] for name in expected() if name.startswith("function public.")]


def hashes(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the catalog says, as it is compared."""
    return {row["object"]: _hash(row["definition"], row["style"]) for row in rows}


def _hash(definition: str, style: str) -> str:
    """The hash of a definition, the same whichever version of PostgreSQL wrote it out.

    A source is as it was written; versions differ in brackets, and in a query also in qualifiers.
    """
    if style == "query":
        definition = _QUALIFIER.sub("", definition)
    if style != "source":
        definition = _NOISE.sub("", definition)
    return hashlib.sha256(definition.encode()).hexdigest()[:16]


def differences(patient: Patient) -> dict[str, str]:
    """What is not as it should be: missing, changed or added, by object."""
    there = hashes(patient.ask("objects", relations=relations(), functions=functions()))
    wanted = expected()
    found = dict.fromkeys(wanted.keys() - there.keys(), "missing")
    found |= dict.fromkeys(there.keys() - wanted.keys(), "added")
    both = wanted.keys() & there.keys()
    found |= {name: "changed" for name in both if wanted[name] != there[name]}
    return dict(sorted(found.items()))


def drift(patient: Patient) -> Iterator[Finding]:
    """Nothing is missing or changed, and what was added is named."""
    found = differences(patient)
    for name, how in found.items():
        if not name.startswith("index ") and how != "added":
            yield Finding(NAME, "error", f"{name} is {how}", _fix(patient, name))
    added = [name for name, how in found.items() if how == "added"]
    if added:
        more = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
        listed = ", ".join(added[:SHOWN]) + more
        yield Finding(NAME, "info", f"not of mailgres: {listed}")


def indexes(patient: Patient) -> Iterator[Finding]:
    """Every index that the queue relies on is there."""
    for name, how in differences(patient).items():
        if name.startswith("index ") and how != "added":
            yield Finding(INDEXES, "error", f"{name} is {how}", patient.restore)


def _fix(patient: Patient, name: str) -> str:
    if name.startswith(RESTORABLE):
        return patient.restore
    table = ".".join(name.split(" ", 1)[1].split(".")[:2])
    return f"mailgres migrate --sql | grep -A 90 'CREATE TABLE {table} '  # then ALTER it by hand"


def unlogged(patient: Patient) -> Iterator[Finding]:
    """No table loses its rows in a crash."""
    for row in patient.ask("unlogged", relations=relations()):
        yield Finding(
            "durability",
            "error",
            f"{row['table']} is unlogged: a crash empties it",
            patient.psql(f"ALTER TABLE {row['table']} SET LOGGED"),
        )


CHECKS = (
    Check(NAME, drift, "everything is as the migrations made it"),
    Check(INDEXES, indexes, "all are there"),
    Check("durability", unlogged, "every table is logged"),
)
