"""Which workers work with which schema.

A migration records its version and the oldest version of a worker that works with what it made.
The schema goes first: an older worker goes on working, a newer one refuses to start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mailgres.version import __version__

WORKS_SINCE = "0.1.0a1"
"""The oldest version whose workers work with the schema of this version. Raise it only when a
change cannot be made in a way that leaves them working."""

_VERSION = re.compile(
    r"(?P<numbers>\d+(?:\.\d+)*)(?:(?P<phase>a|b|rc)(?P<serial>\d+))?(?:\.dev(?P<dev>\d+))?\Z"
)
_PHASES = {"a": 0, "b": 1, "rc": 2, None: 3}


@dataclass(frozen=True)
class Release:
    """The version of mailgres that migrated a database."""

    version: str
    revision: str
    works_since: str
    digest: str


def version() -> str:
    """Return the version of this package."""
    return __version__


def order(text: str) -> tuple[object, ...]:
    """Return a key that sorts versions: 0.1.0a2.dev1 < 0.1.0a2 < 0.1.0.

    An unknown form is less than all others.
    """
    found = _VERSION.match(text)
    if found is None:
        return ()
    numbers = tuple(int(part) for part in found["numbers"].split("."))
    phase = (_PHASES[found["phase"]], int(found["serial"] or 0))
    is_final = found["dev"] is None
    if found["phase"] is None and not is_final:
        phase = (-1, 0)  # 0.1.0.dev1 comes before 0.1.0a1
    return (numbers, *phase, is_final, int(found["dev"] or 0))
