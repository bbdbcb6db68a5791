"""What `mailgres adopt --dry-run` prints."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import psycopg

from mailgres import database
from mailgres.adopt import plan_for, read
from mailgres.adopt.counting import OUTCOMES, Count
from mailgres.cli.support.output import count
from mailgres.cli.support.tables import harmless, table, terminal_width
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mailgres.adopt import Mapping, Plan
    from mailgres.adopt.counting import Counted


def mapping_of(path: Path) -> Mapping:
    """Read the mapping of a file."""
    try:
        return read(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise MailgresError(
            f"Cannot read {path}: {reason}", "`mailgres adopt --inspect` writes it."
        ) from None


def planned(database_url: str | None, path: Path) -> Plan:
    """Read the mapping and count; errors of the database become readable ones."""
    mapping = mapping_of(path)
    with database.connect(database_url, application_name="mailgres adopt") as connection:
        try:
            return plan_for(connection, mapping)
        except psycopg.Error as error:
            raise MailgresError(
                f"Cannot count the rows: {database.first_line(error)}", "Nothing was changed."
            ) from None


def plan_lines(plan: Plan, *, with_query: bool) -> Iterator[str]:
    """Yield the lines of a dry run."""
    for each in plan.queues:
        yield from _queue(each)
        if with_query:
            yield from ("", *map(harmless, each.query.splitlines()))
        yield ""
    for kind, number in plan.logged.items():
        found = count(number, "message is", "messages are")
        yield f"{found} in the log alone: {OUTCOMES[kind]}."
    yield "Nothing was changed: this was a dry run."


def _queue(each: Counted) -> Iterator[str]:
    yield f"{each.table}: {count(sum(c.rows for c in each.counts.values()), 'row')}"
    for kind, what in OUTCOMES.items():
        found = each.counts.get(kind, Count())
        if found.rows:
            yield f"  {found.rows:>9,}  {kind:<10}  {what}{_more(kind, found)}"
    if each.samples:
        yield ""
        rows = [
            (one.kind, one.id or "-", one.recipient or "-", one.status or "-", one.why or "")
            for one in each.samples
        ]
        head = ("what", "id", "recipient", "status", "why")
        yield from chain.from_iterable(table(head, rows, terminal_width()))


def _more(kind: str, found: Count) -> str:
    if kind not in ("waiting", "scheduled", "uncertain"):
        return ""
    parts = []
    if found.recipients > found.rows:
        parts.append(f"{count(found.recipients, 'email')}, one for each address")
    if found.old and kind != "uncertain":
        parts.append(f"{found.old:,} older than 30 days")
    return f" ({'; '.join(parts)})" if parts else ""
