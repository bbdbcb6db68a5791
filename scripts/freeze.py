"""Freeze the SQL of migrations: `make freeze`.

Until the first release, `sql/` as a whole is revision 0001_initial, and this writes it there, with
the SQL that removes it. After that, revisions are written by hand, and this keeps the checksums
that prove that a released one is unchanged (`migrations/frozen/RELEASED` lists them).
"""

from __future__ import annotations

import hashlib
import re
import sys
from typing import TYPE_CHECKING

from mailgres import resources

if TYPE_CHECKING:
    from pathlib import Path

INITIAL = "0001_initial"

_PUBLIC_OBJECT = re.compile(
    r"^CREATE (?:OR REPLACE )?(?P<kind>TABLE|VIEW|FUNCTION)"
    r" (?:IF NOT EXISTS )?public\.(?P<name>\w+)",
    re.MULTILINE,
)

_UP = "-- {name}: sql/ as it was when this revision was frozen. Never edited by hand.\n"

_DOWN = """\
-- {name}, undone: drops what it made, and all mail with it. Never edited by hand.
-- Nothing of the application's is dropped: a view or a foreign key of its own that needs one of
-- our tables stops this with an error that names it.

SET LOCAL client_min_messages = warning;

{views}
-- Everything in the schema but the table of the migrations, which is still in use.
ALTER SCHEMA mailgres RENAME TO mailgres_dropped;
CREATE SCHEMA mailgres;
ALTER TABLE mailgres_dropped.schema_version SET SCHEMA mailgres;
DROP SCHEMA mailgres_dropped CASCADE;

{functions}
{tables}"""


class Released(Exception):
    """A released file was about to change."""


def concatenate(sql: Path) -> str:
    """Return all of `sql/` as one text that names the file of each part."""
    parts = [
        f"\n-- ---- sql/{path.relative_to(sql).as_posix()}\n\n"
        + path.read_text(encoding="utf-8").strip()
        + "\n"
        for path in resources.sql_files(sql)
    ]
    return _UP.format(name=INITIAL) + "".join(parts)


def undo(up: str) -> str:
    """Return the SQL that drops what `up` creates."""
    found: dict[str, list[str]] = {"VIEW": [], "FUNCTION": [], "TABLE": []}
    for match in _PUBLIC_OBJECT.finditer(up):
        found[match["kind"]].append(match["name"])
    return _DOWN.format(
        name=INITIAL,
        views=_drop("VIEW", found["VIEW"]),
        # A function with a type of the dropped schema in its signature is already gone.
        functions=_drop("FUNCTION IF EXISTS", found["FUNCTION"]),
        tables=_drop("TABLE", found["TABLE"]),
    )


def _drop(kind: str, names: list[str]) -> str:
    """Return one statement for all, so that they may depend on each other."""
    if not names:
        return ""
    listed = ",\n    ".join(f"public.{name}" for name in sorted(set(names)))
    return f"DROP {kind}\n    {listed};\n"


def released(frozen: Path) -> set[str]:
    """Return the names of the revisions that users have."""
    lines = (frozen / "RELEASED").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def checksums(frozen: Path) -> str:
    """Return the lines of SHA256SUMS for the existing files."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(frozen.glob("*.sql"))
    )


def is_stale(sql: Path, frozen: Path) -> bool:
    """Return whether `sql/` changed since the unreleased initial revision was frozen."""
    if INITIAL in released(frozen):
        return False
    up = frozen / f"{INITIAL}.up.sql"
    return not up.exists() or up.read_text(encoding="utf-8") != concatenate(sql)


def freeze(sql: Path, frozen: Path) -> None:
    """Write the initial revision while it is unreleased, and the checksums of all."""
    if INITIAL not in released(frozen):
        up = concatenate(sql)
        (frozen / f"{INITIAL}.up.sql").write_text(up, encoding="utf-8")
        (frozen / f"{INITIAL}.down.sql").write_text(undo(up), encoding="utf-8")
    sums = frozen / "SHA256SUMS"
    _refuse_changes(frozen, sums.read_text(encoding="utf-8") if sums.exists() else "")
    sums.write_text(checksums(frozen), encoding="utf-8")


def _refuse_changes(frozen: Path, known: str) -> None:
    now = set(checksums(frozen).splitlines())
    for line in set(known.splitlines()) - now:
        name = line.partition("  ")[2]
        if name.partition(".")[0] in released(frozen):
            raise Released(f"{name} is released and must not change: write a new revision")


def main() -> None:
    """Freeze this checkout."""
    try:
        freeze(resources.sql_directory(), resources.migrations_directory() / "frozen")
    except Released as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
