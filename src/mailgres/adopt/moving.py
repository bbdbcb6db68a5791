"""Move a foreign queue: the table, the view in its place, the waiting rows.

Everything that has to happen at once is one short transaction: the old table moves, the view takes
its name, the triggers are there, the cron job is off. Then rows are imported in chunks. A kill
before the commit leaves everything as it was; after it, the next `mailgres adopt` goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from mailgres import database
from mailgres.adopt.carrying import CLOSED, Obstacle, obstacles, refuse, rights
from mailgres.adopt.checking import answered, check
from mailgres.adopt.counting import OLD_AFTER_DAYS, count
from mailgres.adopt.files import InvalidMapping
from mailgres.adopt.generated import QUERIES as PARTS
from mailgres.adopt.generated import Generated, names, part
from mailgres.adopt.labels import labels
from mailgres.adopt.mapping import Mapping
from mailgres.adopt.moves import QUERIES, Adopted, adopted, ask, run, switch_jobs
from mailgres.adopt.reading import reading
from mailgres.adopt.writers import writers
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.adopt.catalog import Catalog
    from mailgres.adopt.mapping import Queue

HOLD_MINUTES: Final = 15
CHUNK: Final = 500
TRIES: Final = 30
"""How often a move waits two seconds for the lock of the old table."""
LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Options:
    """How to move."""

    hold_minutes: int = HOLD_MINUTES
    old: str | None = None
    """What becomes of waiting rows older than 30 days: send or leave."""
    accept: bool = False
    """Whether to move though something stops working."""


def move(connection: psycopg.Connection[Any], mapping: Mapping, options: Options) -> Iterator[str]:
    """Move every queue of a mapping that was not moved before; yield a line for each step."""
    known = {each.full_name: each for each in adopted(connection)}
    for table in (each.table for each in mapping.queues):
        if table in known and known[table].state == "undoing":
            raise MailgresError(
                f"An undo of {table} was interrupted", "Run `mailgres adopt --undo` first."
            )
    new = Mapping(tuple(each for each in mapping.queues if each.table not in known))
    if new.queues:
        yield from _move_new(connection, new, options)
    for each in adopted(connection):
        if each.full_name in {queue.table for queue in mapping.queues}:
            if each.state == "adopted":
                yield f"{each.full_name} was adopted before: nothing to do."
            yield from _complete(connection, each)


def _move_new(
    connection: psycopg.Connection[Any], mapping: Mapping, options: Options
) -> Iterator[str]:
    with reading(connection) as reader:
        catalog = reader.catalog()
    if not catalog.installed:
        raise MailgresError(
            "mailgres is not installed in this database", "Run `mailgres migrate` first."
        )
    check(mapping, catalog)
    answered(mapping)
    moves = [_prepared(connection, each, catalog) for each in mapping.queues]
    found = [one for each in moves for one in _obstacles(each)]
    _gate(connection, mapping, catalog, found, options)
    for one in found:
        yield from (f"- {one.what}", f"  {one.fix}")
    for each in moves:
        off = _switch(connection, each, options)
        yield f"{each.queue.table} is a view now; the table is {each.base.as_string(connection)}."
        yield from (f"The cron job {title} is switched off." for title in off)
        if not off:
            yield (
                "No cron job of this database was found. Stop the old processor; until then it"
                " finds no row of ours."
            )


def _prepared(connection: psycopg.Connection[Any], queue: Queue, catalog: Catalog) -> Generated:
    table = catalog.table(queue.table)
    assert table is not None  # noqa: S101 - the mapping was checked
    found = Generated(connection, queue, table, catalog, 0, labels(connection, queue, table))
    refuse(queue, table, found.labels)
    (may,) = ask(connection, "rights", table=found.view.as_string(connection))
    if not (may["old"] and may["ours"]):
        owned = queue.table if not may["old"] else "public.email_queue"
        raise MailgresError(
            f"Your role does not own {owned}", "Run this as the owner of both, or as a superuser."
        )
    if may["foreign_schema"] or may["schema"] is False:
        raise MailgresError(
            "There is a schema mailgres_adopted that is not ours", "Rename it, and run this again."
        )
    if not may["plain"]:
        raise MailgresError(f"{queue.table} is partitioned; this cannot be moved yet")
    return found


def _obstacles(made: Generated) -> list[Obstacle]:
    table = made.view.as_string(made.connection)
    lost = ask(made.connection, "lost_rights", table=table, closed=list(CLOSED))
    return [*obstacles(made.queue, made.table, made.catalog), *(rights(**row) for row in lost)]


def _gate(
    connection: psycopg.Connection[Any],
    mapping: Mapping,
    catalog: Catalog,
    found: list[Obstacle],
    options: Options,
) -> None:
    """Refuse before anything changes: rows that cannot be read, old rows, what would be lost."""
    plan = count(connection, mapping, catalog)
    kinds = ("waiting", "scheduled")
    old = sum(each.counts[k].old for each in plan.queues for k in kinds if k in each.counts)
    if old and options.old is None:
        raise MailgresError(
            f"{old:,} waiting rows are older than {OLD_AFTER_DAYS} days",
            "Say what becomes of them: --old send, or --old leave. Nothing was changed.",
        )
    lost = [each for each in found if each.lost]
    if lost and not options.accept:
        lines = "".join(f"\n  {each.what}\n    {each.fix}" for each in lost)
        raise MailgresError(
            f"{len(lost)} things would stop working:{lines}",
            "Nothing was changed. Fix them, or give --accept.",
        )


def _switch(connection: psycopg.Connection[Any], made: Generated, options: Options) -> list[str]:
    """Move the table and put the view in its place, in one transaction."""
    jobs = [each for each in writers(made.table, made.catalog).jobs if each.active]
    for remaining in reversed(range(TRIES)):
        try:
            with connection.transaction():
                _switch_once(connection, made, [each.id for each in jobs], options)
            return [each.title for each in jobs]
        except psycopg.errors.LockNotAvailable:
            if not remaining:
                raise MailgresError(
                    f"Cannot lock {made.queue.table}: others use it all the time",
                    "Nothing was changed. Run this again when less happens.",
                ) from None
        except psycopg.Error as error:
            raise InvalidMapping(
                f"Cannot move {made.queue.table}: {database.first_line(error)}",
                "Nothing was changed. Names in recipient_sql need their schema.",
            ) from None
    raise AssertionError  # the loop returns or raises


def _switch_once(
    connection: psycopg.Connection[Any], made: Generated, jobs: list[int], options: Options
) -> None:
    ask(connection, "limits")
    bodies = {name: Literal(PARTS[name]) for name in ("state_of", "settle", "close_to_others")}
    run(connection, part("state", **bodies))
    (row,) = ask(
        connection,
        "begin",
        schema=made.table.schema,
        table=made.table.name,
        hold=options.hold_minutes,
        old_after=OLD_AFTER_DAYS if options.old == "leave" else None,
        jobs=jobs,
    )
    made = replace(made, number=row["number"])
    run(connection, part("move", table=made.view))
    for statement in made.statements():
        run(connection, statement)
    base, view = (each.as_string(connection) for each in (made.base, made.view))
    for each in ask(connection, "defaults", base=base):
        run(connection, made.default(each["name"], each["expression"]))
    connection.execute(part("close", view=Literal(view)))
    _grant(connection, made, base)
    ask(connection, "trial", {"kind_of": names(made.number)["kind_of"]})
    switch_jobs(connection, jobs, active=False)
    ask(connection, "done", number=made.number, step="move")


def _grant(connection: psycopg.Connection[Any], made: Generated, base: str) -> None:
    for each in ask(connection, "grantees", base=base, closed=list(CLOSED)):
        role, privilege = Identifier(each["role"]), SQL(each["privilege"])
        run(
            connection, SQL(QUERIES["grant"]).format(privilege=privilege, view=made.view, role=role)
        )
        if each["privilege"] == "SELECT":
            run(connection, SQL(QUERIES["grant_state"]).format(role=role))


def _complete(connection: psycopg.Connection[Any], queue: Adopted) -> Iterator[str]:
    """Import the rows that are left, and say what became of all."""
    function = {"import_": names(queue.number)["import_"]}
    while queue.state == "importing":
        with connection.transaction():
            (row,) = ask(connection, "import", function, limit=CHUNK)
        if row["rows"] < CHUNK:
            break
    counts = {row["kind"]: row for row in ask(connection, "counts", number=queue.number)}
    for kind, what in (
        ("waiting", "rows wait"),
        ("scheduled", "rows wait for their time"),
        ("uncertain", "rows were being sent: they are dead letters with the reason uncertain"),
    ):
        if kind in counts:
            number, emails = counts[kind]["rows"], counts[kind]["emails"]
            more = f" ({emails:,} emails, one for each address)" if emails > number else ""
            yield f"{number:>9,}  {what}{more}"
    if late := sum(row["late"] for row in counts.values()):
        yield f"{late:>9,}  emails were also reported by the old processor, too late"
    if "unmappable" in counts:
        left = counts["unmappable"]["rows"]
        yield f"{left:>9,}  rows cannot be mapped, and stay with the old queue:"
        for each in ask(connection, "left", number=queue.number, limit=LISTED):
            yield f"           {each['id']}: {each['why']}"
