"""The demo: a queue in a separate database, a few emails, and a worker.

It runs the statements it shows on a real server, and drops its database afterwards. Its worker
captures the emails; the first call fails temporarily, the second permanently.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from rich import box
from rich.table import Table
from rich.text import Text

from mailgres import database, embedded, migrate
from mailgres.providers.capture.provider import CaptureProvider
from mailgres.providers.faulty import Fault, FaultyProvider
from mailgres.sender import Renderer, Sender
from mailgres.worker import Worker
from mailgres.worker.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from rich.console import Console

    from mailgres.providers import Provider

WELCOME = """\
BEGIN;
-- your application's own statements
SELECT enqueue_email(
  '5f0c9c1e-8d0b-4f7e-9a53-0d6b7a1f2c11', 'welcome_user', 'ana@example.com',
  '{"name": "Ana", "product": "Acme"}');
COMMIT;"""
ROLLED_BACK = """\
BEGIN;
SELECT enqueue_email(NULL, 'welcome_user', 'nobody@example.com');
ROLLBACK;"""
SCHEDULED = """\
SELECT enqueue_email(
  NULL, 'signup_confirmation', 'joao@example.com',
  '{"name": "João", "confirmation_url": "https://acme.example.com/c/1"}',
  p_tenant_id => 'acme', p_scheduled_for => now() + interval '2 hours');"""
BULK = """\
SELECT count(*) AS enqueued FROM enqueue_emails('[
  {"template_type": "welcome_user", "recipient_email": "li@example.com",
   "tenant_id": "acme", "payload": {"locale": "pt"}},
  {"recipient_email": "kim@example.com",
   "subject": "Your invoice", "text": "It is 12 EUR."}]');"""
REFUSED = """\
SELECT enqueue_email(NULL, 'welcome_usr', 'ana@example.com');"""
QUEUE = """\
SELECT recipient_email, template_type, tenant_id, status, ready AS due
FROM email_queue ORDER BY id;"""
ARRIVED = """\
SELECT message->>'to' AS "to", message->>'subject' AS subject
FROM mailgres.captured ORDER BY captured_at;"""
OUTCOME = """\
SELECT recipient_email, status, retries, dead_reason, error_message
FROM email_queue ORDER BY id;"""
LOG = """\
SELECT event, attempt, provider, error_class, next_retry_at - at AS wait
FROM email_logs ORDER BY id;"""
BEFORE = (
    ("An email belongs to the transaction that enqueues it", WELCOME),
    ("and goes with it", ROLLED_BACK),
    ("Later, for another tenant", SCHEDULED),
    ("Many in one call; one of them has inline content", BULK),
    ("Bad input is refused where it happens", REFUSED),
    ("The queue", QUEUE),
)
AFTER = (
    ("A worker ran. What it rendered and sent (here: captured)", ARRIVED),
    ("After simulated faults: one was retried, one is dead with its reason", OUTCOME),
    ("What happened, attempt by attempt", LOG),
)
FAULTS = (
    Fault("transient", frozenset({1}), code="503", message="the provider was busy"),
    Fault("permanent", frozenset({2}), code="422", message="no such mailbox"),
)


def run(console: Console, server: str) -> None:
    """Run the demo in a separate database on a server, and show it."""
    with _scratch_database(server) as url:
        migrate.upgrade(url)
        with database.connect(url, autocommit=True) as connection:
            say(console, f"PostgreSQL {_version(connection)} is up, and the queue is migrated.\n")
            for title, statement in BEFORE:
                _show(console, connection, title, statement)
            _send_all(url, connection)
            for title, statement in AFTER:
                _show(console, connection, title, statement)
    say(console, "The demo's database was dropped. Next: mailgres migrate (see README).")


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no line breaks in a pipe, no brackets as markup."""
    console.print(Text(text, style), soft_wrap=True)


def _show(console: Console, connection: psycopg.Connection, title: str, statements: str) -> None:
    """Run statements and print them with their results: tables, or the error."""
    say(console, f"-- {title}", "bold")
    say(console, statements, "cyan")
    try:
        # several statements at once, which a cursor that reads in binary cannot run
        cursor = psycopg.Cursor(connection).execute(statements)
    except psycopg.Error as error:
        say(console, f"ERROR:  {error.diag.message_primary}", "red")
        say(console, f"HINT:  {error.diag.message_hint}")
    else:
        for table in _tables(cursor):
            console.print(table)
    console.print()


def _send_all(url: str, connection: psycopg.Connection) -> None:
    """Let a worker send what is due, also after short retry delays."""
    store = Store(url, worker="demo")
    try:
        store.use_defaults("development", None)
        connection.execute("UPDATE email_queue SET retry_policy = 'development'")
        capture = CaptureProvider(store.capture, batch_size=1)
        providers: dict[str, Provider] = {"capture": FaultyProvider(capture, FAULTS)}
        sender = Sender(store, Renderer(store, "Acme <hello@acme.example.com>"), providers)
        left = "SELECT EXISTS (SELECT FROM email_queue WHERE status = 'pending' AND retries > 0)"
        for _ in range(50):
            Worker(store, sender, lease=timedelta(minutes=1), concurrency=1).drain()
            if connection.execute(left).fetchone() == (False,):
                break
            time.sleep(0.1)
    finally:
        store.close()


@contextmanager
def _scratch_database(server: str) -> Iterator[str]:
    """Yield a database for the demo, dropped at the end."""
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


def _tables(cursor: psycopg.Cursor[Any]) -> Iterator[Table]:
    """Yield a table for each result that has rows."""
    more: bool | None = True
    while more:
        if cursor.description:
            table = Table(*(column.name for column in cursor.description), box=box.ROUNDED)
            for row in cursor:
                table.add_row(*(Text(_text(value)) for value in row))
            yield table
        more = cursor.nextset()


def _text(value: object) -> str:
    """Return a value roughly as psql shows it."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.1f} s"
    return "" if value is None else str(value)
