"""Freeze the SQL of migrations: `make freeze`.

Until the first release, the tables of `sql/`, and what they need, are revision 0001_initial, and
this writes them there, with the SQL that removes them. After that, revisions are written by hand,
and this keeps the checksums that prove that a released one is unchanged
(`migrations/frozen/RELEASED` lists them).
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

from mailgres import resources
from mailgres.schema.sources import Sources

if TYPE_CHECKING:
    from pathlib import Path

INITIAL = "0001_initial"

_UP = "-- {name}: sql/ as it was when this revision was frozen. Never edited by hand.\n"

_DOWN = """\
-- {name}, undone: drops what it made, and all mail with it. Never edited by hand.
-- Nothing of the application's is dropped: a view or a foreign key of its own that needs one of
-- our tables stops this with an error that names it.

SET LOCAL client_min_messages = warning;

DO $$
DECLARE
    v_views     text;
    v_routines  text;
BEGIN
    SELECT string_agg(substr(o.object, 6), ', ') FILTER (WHERE o.object LIKE 'view public.%'),
           string_agg(substr(o.object, 10), ', ') FILTER (WHERE o.object LIKE 'function public.%')
    INTO v_views, v_routines
    FROM mailgres.schema_objects o;
    -- One statement for all, because they depend on each other.
    EXECUTE coalesce('DROP VIEW IF EXISTS ' || v_views, '');
    -- Everything in the schema but the table of the migrations, which is still in use.
    ALTER SCHEMA mailgres RENAME TO mailgres_dropped;
    CREATE SCHEMA mailgres;
    ALTER TABLE mailgres_dropped.schema_version SET SCHEMA mailgres;
    DROP SCHEMA mailgres_dropped CASCADE;
    -- A function with a type of the dropped schema in its signature is already gone.
    EXECUTE coalesce('DROP ROUTINE IF EXISTS ' || v_routines, '');
END
$$;

{tables}"""


class Released(Exception):
    """A released file was about to change."""


def concatenate(sql: Path) -> str:
    """Return the statements of `sql/` that belong to revisions, with the file of each."""
    parts, file = [_UP.format(name=INITIAL)], None
    for each in Sources(sql).versioned:
        if each.file != file:
            parts.append(f"\n-- ---- sql/{each.file}\n")
            file = each.file
        parts.append(f"\n{each.text}\n")
    return "".join(parts)


def undo(sql: Path) -> str:
    """Return the SQL that drops what the initial revision creates."""
    return _DOWN.format(name=INITIAL, tables=_drop("TABLE", Sources(sql).tables("public")))


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


def versioned_digest(sql: Path) -> str:
    """Return a hash of the statements that belong to revisions."""
    text = "\n".join(each.text for each in Sources(sql).versioned)
    return hashlib.sha256(text.encode()).hexdigest()


def known_digests(frozen: Path) -> dict[str, str]:
    """Return that hash for each revision, as it was when the revision was frozen."""
    place = frozen / "SOURCES"
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def missing_revision(sql: Path, frozen: Path) -> str | None:
    """Return what to do if tables changed since the last release and no revision says how."""
    newest = resources.revisions(frozen.parent)[-1]
    known = known_digests(frozen).get(newest)
    if newest not in released(frozen) or known == versioned_digest(sql):
        return None
    return (
        f"sql/ has tables, types, indexes or rows that no revision makes: {newest} is released."
        " Run `make revision NAME=what_it_does`, complete the two files that it writes, and run"
        " `make freeze`."
    )


def freeze(sql: Path, frozen: Path) -> None:
    """Write the initial revision while it is unreleased, and the checksums of all."""
    if INITIAL not in released(frozen):
        up = concatenate(sql)
        (frozen / f"{INITIAL}.up.sql").write_text(up, encoding="utf-8")
        (frozen / f"{INITIAL}.down.sql").write_text(undo(sql), encoding="utf-8")
    newest = max(resources.revisions(frozen.parent), default=INITIAL)
    if newest not in released(frozen):
        known = known_digests(frozen) | {newest: versioned_digest(sql)}
        lines = (f"{digest}  {name}\n" for name, digest in sorted(known.items()))
        (frozen / "SOURCES").write_text("".join(lines), encoding="utf-8")
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
