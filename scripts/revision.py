"""Begin a revision of the schema: `make revision NAME=what_it_does`.

It gets the statements of `sql/` that no earlier revision has. New tables and indexes are complete;
for what changed, it says so, and a person writes the ALTER.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from mailgres import resources
from mailgres.schema.sources import Sources

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9_]{2,26}")
_MAKES = re.compile(
    r"CREATE (?:UNIQUE )?(?P<kind>TABLE|INDEX|TYPE|DOMAIN|SEQUENCE|FUNCTION) (?P<name>[\w.]+)"
    r"(?:[^;]*?\bON (?P<schema>\w+)\.)?"
)

UP = """\
-- {name}: {title}.
-- locks: say which locks it takes, on which tables, and for how long
--
-- Workers of the version before go on working while this runs and after it: add columns that are
-- null or have a default, and drop nothing that they use. Call no function of ours that a revision
-- did not make. An index of email_queue is made in a revision of its own, whose first line is
-- `-- not in a transaction`, with CREATE INDEX CONCURRENTLY IF NOT EXISTS.

{statements}"""
DOWN = """\
-- {name}, undone, with emails in the queue.

{statements}"""
VERSION = '''"""{title}."""

from mailgres.schema.revisions import run_frozen

revision = "{name}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("{name}.up.sql")


def downgrade() -> None:
    run_frozen("{name}.down.sql")
'''


def begin(sql: Path, migrations: Path, given: str) -> str:
    """Write the files of the next revision and return its name."""
    if not _NAME.fullmatch(given):
        raise ValueError(f"{given!r} is not a name such as add_bounce_code")
    frozen = migrations / "frozen"
    known = resources.revisions(migrations)
    name = f"{int(known[-1][:4]) + 1:04}_{given}"
    title = given.replace("_", " ").capitalize()
    earlier = "".join((frozen / f"{each}.up.sql").read_text(encoding="utf-8") for each in known)
    # A revision that changes a function replaces it.
    earlier = earlier.replace("CREATE OR REPLACE ", "CREATE ")
    new = list(filter(None, (_unknown(each.text, earlier) for each in Sources(sql).versioned)))
    up = "\n\n".join(_change(text, earlier) for text in new) or "-- TODO"
    down = "\n".join(_undo(text, earlier) for text in reversed(new)) or "-- TODO"
    for place, text in (
        (frozen / f"{name}.up.sql", UP.format(name=name, title=title, statements=up + "\n")),
        (frozen / f"{name}.down.sql", DOWN.format(name=name, statements=down + "\n")),
        (
            migrations / "versions" / f"{name}.py",
            VERSION.format(name=name, title=title, before=known[-1]),
        ),
    ):
        place.write_text(text, encoding="utf-8")
    return name


def _unknown(text: str, earlier: str) -> str:
    """Return a statement that no earlier revision has; of an INSERT, only the rows that are new."""
    if text in earlier:
        return ""
    head, values, listed = text.partition("VALUES\n")
    if not (values and head.startswith("INSERT")):
        return text
    rows = re.split(r",\n(?=    \()", listed.removesuffix(";"))
    new = [row for row in rows if row not in earlier]
    return f"{head}{values}{f',{chr(10)}'.join(new)};" if new else ""


def _change(text: str, earlier: str) -> str:
    """Return a new statement, or a remark about one that changed."""
    found = _MAKES.match(text)
    if found is None or found[0] not in earlier:
        return text
    return (
        f"-- TODO: {found['kind'].lower()} {found['name']} changed in sql/: write what changes it"
    )


def _undo(text: str, earlier: str) -> str:
    found = _MAKES.match(text)
    if found is None or found[0] in earlier or found["kind"] == "FUNCTION":
        return f"-- TODO: undo {text.partition(chr(10))[0]}"
    schema = f"{found['schema']}." if found["kind"] == "INDEX" else ""
    return f"DROP {found['kind']} {schema}{found['name']};"


def main() -> None:
    """Begin a revision of this checkout."""
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        name = begin(resources.sql_directory(), resources.migrations_directory(), given)
    except ValueError as error:
        sys.exit(f"Error: {error}: make revision NAME=what_it_does")
    print(f"Complete migrations/frozen/{name}.up.sql and .down.sql, then run `make freeze`.")


if __name__ == "__main__":
    main()
