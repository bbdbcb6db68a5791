"""Writes the pages of the documentation that are generated: `make docs`.

docs/errors.md comes from mailgres.errors, docs/sql.md from the comments in the database, both so
that they cannot be wrong for long: a test compares them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mailgres import database, embedded, errors, migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"

SPEED = re.compile(r"^\| what \| against \| measured \|\n(?:\|.*\n)+", re.MULTILINE)
"""The table of the README that speed_table() writes."""

ERRORS_HEAD = """\
# Errors

Generated from `mailgres.errors` by `make docs`.

What the database refuses has a SQLSTATE of class `MG`, a message and a hint, and leaves nothing
behind. In Python each is an exception of `mailgres.errors` with `.message`, `.hint`, `.sqlstate`.

| SQLSTATE | exception | what it means | what to do |
|---|---|---|---|
"""
SQL_HEAD = """\
# What there is in SQL

Generated from the comments in the database by `make docs`. Functions and tables in `public` are the
contract: their names never change their meaning. The schema `mailgres` is for the worker.
"""
FUNCTIONS = """
    SELECT p.proname,
           pg_get_function_arguments(p.oid),
           pg_get_function_result(p.oid),
           obj_description(p.oid, 'pg_proc')
    FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace
    ORDER BY p.proname
"""
TABLES = """
    SELECT c.relname, obj_description(c.oid, 'pg_class')
    FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
    ORDER BY c.relname
"""
COLUMNS = """
    SELECT a.attname, format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), a.atttypmod),
           col_description(a.attrelid, a.attnum)
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = ('public.' || %s)::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


def classes(base: type[errors.MailgresError]) -> Iterator[type[errors.MailgresError]]:
    """All exceptions below one, in the order in which they are written."""
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def errors_page() -> str:
    """The page of all errors."""
    rows = (
        f"| {cls.sqlstate or ''} | `{cls.__name__}` | {cls.default_message()} |"
        f" {cls.default_hint or ''} |\n"
        for cls in classes(errors.MailgresError)
        if cls.__module__ == errors.__name__ and (cls.sqlstate or not cls.__subclasses__())
    )
    return ERRORS_HEAD + "".join(rows)


def sql_page(connection: psycopg.Connection) -> str:
    """The page of the functions and tables of the contract."""
    parts = [SQL_HEAD, "\n## Functions\n"]
    for name, arguments, result, comment in connection.execute(FUNCTIONS):
        listed = "".join(f"\n    {argument}," for argument in arguments.split(", ")).rstrip(",")
        parts.append(f"\n### {name}\n\n{comment}\n\n```text\n{name}({listed}\n) → {result}\n```\n")
    parts.append("\n## Tables\n")
    for name, comment in connection.execute(TABLES).fetchall():
        parts.append(f"\n### {name}\n\n{comment}\n\n| column | type | |\n|---|---|---|\n")
        parts += (
            f"| `{column}` | {kind} | {about or ''} |\n"
            for column, kind, about in connection.execute(COLUMNS, (name,))
        )
    return "".join(parts)


def speed_table() -> str:
    """The figures of the README, out of the committed results of the benchmarks."""
    enqueue, claim = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("enqueue", "claim")
    )
    one, bulk, many = (enqueue[part] for part in ("one_by_one", "in_bulk", "many_clients"))
    claims = [
        size["ratio"]
        for step, sizes in claim.items()
        if step[1:2] == ":"
        for size in sizes.values()
    ]
    rows = [
        ("what", "against", "measured"),
        ("---", "---", "---"),
        (
            "`enqueue_email`, one commit each",
            "a bare one-row INSERT of the same data",
            f"{one['ratio']} of its rate",
        ),
        (
            "`enqueue_emails`, a thousand at once",
            "a bare INSERT of a thousand rows",
            f"{bulk['ratio']} of its rate",
        ),
        (
            "32 clients enqueuing, workers busy",
            "the same without the check for sleepers",
            f"{many['ratio']} of its rate",
        ),
        (
            "a claim at 4 million rows, 10,000 tenants",
            "a claim at 1,000 rows",
            f"{min(claims)} to {max(claims)} times as long",
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    """Write the pages anew."""
    (DOCS / "errors.md").write_text(errors_page(), encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = SPEED.sub(lambda _: speed_table(), readme)
    (ROOT / "README.md").write_text(readme, encoding="utf-8")
    with embedded.server() as server:
        url = embedded.database(server, "mailgres_reference")
        migrate.upgrade(url)
        with database.connect(url) as connection:
            (DOCS / "sql.md").write_text(sql_page(connection), encoding="utf-8")
        with database.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE mailgres_reference WITH (FORCE)")


if __name__ == "__main__":
    main()
