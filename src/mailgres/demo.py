"""What a newcomer sees first: a queue in a database of its own, and a few emails in it.

The demo runs the statements it shows, on a real server, and drops its database afterwards.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from mailgres import database, embedded, migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WELCOME = """\
BEGIN;
-- your application's own statements
SELECT enqueue_email('5f0c9c1e-8d0b-4f7e-9a53-0d6b7a1f2c11', 'welcome_user', 'ana@example.com',
                     '{"name": "Ana", "product": "Acme"}');
COMMIT;"""
ROLLED_BACK = """\
BEGIN;
SELECT enqueue_email(NULL, 'welcome_user', 'nobody@example.com');
ROLLBACK;"""
SCHEDULED = """\
SELECT enqueue_email(NULL, 'signup_confirmation', 'joao@example.com',
                     '{"name": "João", "confirmation_url": "https://acme.example.com/c/1"}',
                     p_tenant_id => 'acme', p_scheduled_for => now() + interval '2 hours');"""
BULK = """\
SELECT count(*) AS enqueued FROM enqueue_emails('[
  {"template_type": "welcome_user", "recipient_email": "li@example.com", "tenant_id": "acme"},
  {"recipient_email": "kim@example.com", "subject": "Your invoice", "text": "It is 12 EUR."}]');"""
REFUSED = """\
SELECT enqueue_email(NULL, 'welcome_usr', 'ana@example.com');"""
QUEUE = """\
SELECT recipient_email, template_type, tenant_id, status, ready AS due
FROM email_queue ORDER BY id;"""


def run(say: Callable[[str], None]) -> None:
    """Run the demo, telling `say` each line."""
    with embedded.server() as server, _scratch_database(server) as url:
        migrate.upgrade(url)
        with database.connect(url, autocommit=True) as connection:
            say(f"PostgreSQL {_version(connection)} is up, and the queue is migrated.\n")
            for title, statement in (
                ("An email belongs to the transaction that enqueues it", WELCOME),
                ("and goes with it", ROLLED_BACK),
                ("Later, for another tenant", SCHEDULED),
                ("Many in one call; one of them brings its own content", BULK),
                ("Bad input is refused where it happens", REFUSED),
                ("The queue", QUEUE),
            ):
                say(f"-- {title}\n{statement}")
                say("\n".join(_answer(connection, statement)) + "\n")
    say("The demo's database is gone again. Next: mailgres migrate on your own (see README).")


@contextmanager
def _scratch_database(server: str) -> Iterator[str]:
    """A database for the demo alone, dropped at the end."""
    name = f"mailgres_demo_{secrets.token_hex(4)}"
    url = embedded.database(server, name)
    try:
        yield url
    finally:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        with database.connect(server, autocommit=True) as connection:
            connection.execute(drop)


def _version(connection: psycopg.Connection) -> str:
    major, minor = divmod(connection.info.server_version, 10_000)
    return f"{major}.{minor}"


def _answer(connection: psycopg.Connection, statements: str) -> list[str]:
    """What the database says to some statements: a table, or the refusal."""
    try:
        cursor = connection.execute(statements)
    except psycopg.Error as error:
        return [f"ERROR:  {error.diag.message_primary}", f"HINT:  {error.diag.message_hint}"]
    lines: list[str] = []
    while True:
        if cursor.description:
            names = [column.name for column in cursor.description]
            lines += _table(names, [[str(value) for value in row] for row in cursor])
        if not cursor.nextset():
            return lines


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as psql shows them."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    cells = [" | ".join(map(str.ljust, row, widths)).rstrip() for row in (names, *rows)]
    rule = "-+-".join("-" * width for width in widths)
    return [f" {line}" for line in (cells[0], rule, *cells[1:])]
