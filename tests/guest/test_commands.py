"""The commands and the worker do the same whatever settings the database gives its sessions."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from mailgres import migrate
from mailgres.doctor import examine
from mailgres.errors import MigrationFailed
from mailgres.settings import Settings
from support.postgres import Server, database_name
from support.program import Program
from support.queue import Clock, Queue

ODD = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Jakarta",
    "IntervalStyle": "postgres_verbose",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "default_transaction_isolation": "serializable",
    "check_function_bodies": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "client_encoding": "SQL_ASCII",
    "row_security": "off",
    "search_path": "decoy",
    "synchronous_commit": "off",
    "plan_cache_mode": "force_custom_plan",
}
"""All at once: what one of them breaks is broken."""

COMMANDS: list[tuple[str, ...]] = [
    ("migrate", "--check"),
    ("migrate",),
    ("process", "--until-empty"),
    ("status", "--json"),
    ("list", "--json"),
    ("dlq", "list", "--json"),
    ("dlq", "export"),
    ("eta", "--json"),
    ("alerts", "--json"),
    ("providers", "--json"),
    ("routes", "--json"),
    ("tenants", "--json"),
    ("policies", "--json"),
    ("suppressions", "list", "--json"),
    ("templates", "list", "--json"),
    ("janitor", "--all"),
    ("doctor", "--offline", "--json"),
]


def make_odd(url: str) -> None:
    """Give every later session of a database these settings."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA decoy")
        for name, value in ODD.items():
            change = sql.SQL("ALTER DATABASE {} SET {} = {}")
            parts = (sql.Identifier(database_name(url)), sql.Identifier(name), sql.Literal(value))
            connection.execute(change.format(*parts))


@pytest.fixture
def twins(server: Server, template: str) -> object:
    """Two databases with the same emails, one of them with odd settings."""
    now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    with server.database(template) as plain, server.database(template) as odd:
        for url in (plain, odd):
            with psycopg.connect(url, autocommit=True) as connection:
                Clock(connection, now)  # no minute passes between the two runs of a command
                fill(Queue(connection))
        make_odd(odd)
        yield plain, odd


def fill(queue: Queue) -> None:
    """Enqueue, each in a millisecond of its own: within one, the order of ids may differ."""
    payload = {"name": "Zoë", "product": "Acme"}
    another_millisecond = "SELECT pg_sleep(0.002)"
    queue.enqueue(payload=payload)
    queue.attempt("permanent", code="550", message="no such user", duration_ms=1)
    queue.run(another_millisecond)
    queue.enqueue(payload=payload, subject="Grüße", text="Olá", max_retry_delay="1 hour")
    queue.run(another_millisecond)
    queue.enqueue(payload=payload, retry_delay="90 seconds")
    queue.run(another_millisecond)
    queue.run("SELECT reschedule_email(%s, now() + interval '1 day')", queue.enqueue())
    queue.suppress("s@example.com")


CHANGING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|mailgres_test_\w+"
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?|\d+(?:\.\d+)?(?= s\b| ms\b)"
)


def said(program: Program, command: tuple[str, ...]) -> str:
    """Return what a command prints, without what differs from one run to the next."""
    done = program.run(*command)
    assert "Traceback" not in done.stderr, done.stderr
    text = CHANGING.sub("~", done.stdout)
    return f"{done.returncode}\n{re.sub(r'-?[0-9]+[.][0-9]+(?:e-?[0-9]+)?', '~', text)}"


def test_every_command_prints_the_same_with_any_setting(twins: tuple[str, str]) -> None:
    # Otherwise the name of each run is that of its process.
    plain, odd = (Program(url, {"MAILGRES_WORKER_NAME": "twin"}) for url in twins)
    for command in COMMANDS:
        assert said(odd, command) == said(plain, command), command


def test_the_doctor_finds_no_drift(database_url: str) -> None:
    make_odd(database_url)
    found = list(examine(Settings(database_url=database_url), offline=True))
    left_out = {one.check for one in found if one.message.startswith("not checked")}
    assert left_out <= {"settings", "credentials", "dns", "privileges"}, "all others were examined"
    assert [one for one in found if one.severity == "error"] == []


def test_migrate_makes_the_same_schema(
    server: Server, empty_database_url: str, migrations: object
) -> None:
    make_odd(empty_database_url)
    with server.one_at_a_time():
        migrate.upgrade(empty_database_url, directory=migrations)  # type: ignore[arg-type]
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("SELECT 1")
        for name in ODD:
            reset = sql.SQL("ALTER DATABASE {} RESET {}")
            database = sql.Identifier(database_name(empty_database_url))
            connection.execute(reset.format(database, sql.Identifier(name)))
    found = examine(Settings(database_url=empty_database_url), only=["schema-drift"])
    assert [one.severity for one in found] == ["ok"]


def test_a_read_only_default_is_refused_in_words(server: Server, database_url: str) -> None:
    """Nothing is written where a database says that nothing is to be."""
    del server
    with psycopg.connect(database_url, autocommit=True) as connection:
        database = sql.Identifier(database_name(database_url))
        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
        connection.execute(change.format(database))
    done = Program(database_url).run("enqueue", "welcome_user", "ana@example.com")
    assert done.returncode == 1
    assert "read-only transaction" in done.stderr
    with pytest.raises(MigrationFailed):
        migrate.downgrade(database_url)
    status = Program(database_url).run("status", "--json")
    assert json.loads(status.stdout)
