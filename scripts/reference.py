"""Write docs/errors.md, docs/sql.md and the schema that doctor compares with: `make docs`.

docs/errors.md comes from mailgres.errors, docs/sql.md and the schema from a migrated database. A
test compares the files with what they are generated from.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql

import schema_hashes
from mailgres import database, embedded, errors, migrate
from mailgres.doctor import schema
from servers import given_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

ERRORS_HEAD = """\
# Errors

Generated from `mailgres.errors` by `make docs`.

A refusal of the database has a SQLSTATE of class `MG`, a message and a hint, and changes nothing.
In Python each is an exception of `mailgres.errors` with `.message`, `.hint` and `.sqlstate`.

| SQLSTATE | exception | what it means | what to do |
|---|---|---|---|
"""
SQL_HEAD = """\
# SQL reference

Generated from the comments in the database by `make docs`. Functions and tables in `public` are the
contract: their names never change their meaning. The schema `mailgres` is internal to the worker.
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
    """Yield all subclasses of an exception, in the order of the source."""
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def errors_page() -> str:
    """Return the page of all errors."""
    rows = (
        f"| {cls.sqlstate or ''} | `{cls.__name__}` | {cls.default_message()} |"
        f" {cls.default_hint or ''} |\n"
        for cls in classes(errors.MailgresError)
        if cls.__module__ == errors.__name__ and (cls.sqlstate or not cls.__subclasses__())
    )
    return ERRORS_HEAD + "".join(rows)


def sql_page(connection: psycopg.Connection) -> str:
    """Return the page of the functions and tables of the contract."""
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


def main() -> None:
    """Write the pages."""
    (DOCS / "errors.md").write_text(errors_page(), encoding="utf-8")
    with given_server() as server:
        # Other runs may use the same server.
        name = f"mailgres_reference_{os.getpid()}"
        url = embedded.database(server, name)
        migrate.upgrade(url)
        with database.connect(url) as connection:
            (DOCS / "sql.md").write_text(sql_page(connection), encoding="utf-8")
            schema.EXPECTED.write_text(schema_hashes.text(connection), encoding="utf-8")
        with database.connect(server, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


if __name__ == "__main__":
    main()
