"""Print a migration as SQL for an administrator: running it twice does nothing the second time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres import queries
from mailgres.schema import alone
from mailgres.schema.objects import QUERIES
from mailgres.schema.release import WORKS_SINCE, version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.schema.sources import Sources, Wanted

PARTS = queries.load("schema/script.sql")


@dataclass(frozen=True)
class Revision:
    """A revision and its SQL."""

    name: str
    before: str | None
    sql: str


@dataclass(frozen=True)
class Around:
    """The SQL at the start of each transaction, and before a commit that is not the last."""

    start: str
    commit: str


def script(
    around: Around, revisions: Sequence[Revision], start: str | None, sources: Sources
) -> str:
    """Return the SQL that brings a database from a revision, or from nothing, to the newest one."""
    names = [each.name for each in revisions]
    first = names.index(start) + 1 if start else 0
    parts = [
        PARTS["head"].format(
            version=version(), head=names[-1], start=f", from {start} on" if start else ""
        ),
        f"\n\nBEGIN;\n{around.start}",
    ]
    parts += [
        _revision(each, names[place:], around)
        for place, each in enumerate(revisions)
        if place >= first
    ]
    return "".join([*parts, "\n\n", objects(sources), "\n"])


def objects(sources: Sources) -> str:
    """Return the SQL that replaces the objects that differ, and the end of the transaction."""
    return PARTS["objects"].format(
        machinery="\n\n".join(each.statement for each in sources.machinery),
        rows=",\n".join(map(_row, sources.wanted)),
        version=version(),
        works_since=WORKS_SINCE,
        digest=sources.digest,
    )


def _revision(revision: Revision, later: list[str], around: Around) -> str:
    own = ""
    run = (
        f"    EXECUTE $revision$\n{revision.sql}\n$revision$;\n"
        f"    EXECUTE $again$\n{QUERIES['remake']}\n$again$;"
    )
    if revision.sql.startswith(alone.FIRST_LINE):
        own = "\n\n".join(
            (
                f"\n\n{around.commit}",
                "COMMIT;",
                alone.printed(revision.name, revision.sql),
                f"BEGIN;\n{around.start}",
            )
        )
        run = ""
    previous = f"'{revision.before}'" if revision.before else "NULL"
    listed = ", ".join(f"'{name}'" for name in later)
    return f"{own}\n\n" + PARTS["revision"].format(
        name=revision.name, before=previous, later=f"ARRAY[{listed}]", run=run
    )


def _row(wanted: Wanted) -> str:
    return (
        f"ROW('{wanted.kind}', '{wanted.name}', $object${wanted.statement}$object$)"
        "::mailgres.wanted_object"
    )
