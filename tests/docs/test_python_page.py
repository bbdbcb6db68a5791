"""Every block of docs/python.md runs on a real PostgreSQL and does what the page says."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mailgres import errors, testing
from support.program import PROGRAM

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:])
BLOCKS = {
    f"{name} {number}": text
    for name, section in SECTIONS.items()
    for number, text in enumerate(
        (text for kind, text in BLOCK.findall(section) if kind == "python"), 1
    )
}
Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(
    conn: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Run a block of the page, in a database that has the page's table."""
    (table,) = (text for kind, text in BLOCK.findall(PAGE) if kind == "sql")
    conn.execute(table.encode())
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("PATH", str(PROGRAM.parent), prepend=":")
    opened: list[dict[str, Any]] = []

    def run_block(name: str) -> dict[str, Any]:
        module = types.ModuleType("page")
        monkeypatch.setitem(sys.modules, "page", module)
        exec(compile(BLOCKS[name], f"python.md, {name}", "exec"), module.__dict__)  # noqa: S102
        opened.append(module.__dict__)
        return module.__dict__

    yield run_block
    for names in opened:
        if "engine" in names:
            names["engine"].dispose()


def emails(conn: psycopg.Connection) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT template_type, recipient_email, status FROM email_queue ORDER BY id"
    ).fetchall()


def users(conn: psycopg.Connection, table: str = "users") -> int:
    row = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


WELCOME = ("welcome_user", "ana@example.com", "pending")
ANA = {"email": "ana@example.com", "name": "Ana"}
NOBODY = {"email": "ana@example", "name": "Ana"}
WHAT_BLOCKS_LEAVE: dict[str, list[tuple[str, str, str]]] = {
    "psycopg 1": [WELCOME],
    "psycopg 2": [("invoice", "ana@example.com", "pending")],
    "SQLAlchemy 1": [WELCOME],
    "Async 1": [WELCOME],
    "Async 2": [WELCOME],
    "Other drivers 1": [WELCOME],
    "Errors 1": [],
    "Idempotency keys 1": [WELCOME],
    "Schedule and expiry 1": [WELCOME],
    "Cancel, retry, reschedule 1": [WELCOME],
}
"""Blocks that are scripts, and the emails that are in the queue after each."""


@pytest.mark.parametrize("name", WHAT_BLOCKS_LEAVE)
def test_a_script_of_the_python_page_leaves_these_emails(
    run: Run, conn: psycopg.Connection, name: str
) -> None:
    run(name)
    assert emails(conn) == WHAT_BLOCKS_LEAVE[name]


def test_a_refused_email_in_a_savepoint_leaves_the_user(run: Run, conn: psycopg.Connection) -> None:
    run("Errors 1")
    assert (users(conn), emails(conn)) == (1, [])


def test_the_block_on_many_emails_enqueues_all_of_them(run: Run, conn: psycopg.Connection) -> None:
    run("Many emails 1")
    assert len(emails(conn)) == 2500


def test_fastapi_commits_user_and_email_together_or_neither(
    run: Run, conn: psycopg.Connection
) -> None:
    from fastapi.testclient import TestClient

    with TestClient(run("FastAPI 1")["app"], raise_server_exceptions=False) as client:
        assert client.post("/signup", json=ANA).status_code == 201
        assert (users(conn), emails(conn)) == (1, [WELCOME])
        refused = client.post("/signup", json=NOBODY)
        assert refused.status_code == 422
        assert refused.json() == {"error": "recipient_email is not an email address"}
        assert client.post("/signup", json=ANA).status_code == 500, "a duplicate"
        assert (users(conn), emails(conn)) == (1, [WELCOME])


def test_fastapi_returns_an_error_when_the_commit_fails(run: Run, conn: psycopg.Connection) -> None:
    from fastapi.testclient import TestClient

    conn.execute("ALTER TABLE users DROP CONSTRAINT users_email_key")
    conn.execute("ALTER TABLE users ADD UNIQUE (email) DEFERRABLE INITIALLY DEFERRED")
    with TestClient(run("FastAPI 1")["app"], raise_server_exceptions=False) as client:
        assert client.post("/signup", json=ANA).status_code == 201
        assert client.post("/signup", json=ANA).status_code == 500
    assert (users(conn), emails(conn)) == (1, [WELCOME])


def test_the_async_fastapi_block_enqueues(run: Run, conn: psycopg.Connection) -> None:
    from fastapi.testclient import TestClient

    with TestClient(run("FastAPI 2")["app"]) as client:
        assert client.post("/remind/ana@example.com").status_code == 201
    assert emails(conn) == [WELCOME]


def test_flask_commits_user_and_email_together_or_neither(
    run: Run, conn: psycopg.Connection
) -> None:
    page = run("Flask 1")
    with page["pool"], page["app"].test_client() as client:
        assert client.post("/signup", json=ANA).status_code == 201
        refused = client.post("/signup", json=NOBODY)
        assert (refused.status_code, refused.json) == (
            422,
            {"error": "recipient_email is not an email address"},
        )
    assert (users(conn), emails(conn)) == (1, [WELCOME])


@pytest.fixture
def django(conn: psycopg.Connection) -> Iterator[None]:
    """Django on the test's database. A process can configure it once, so one test uses it."""
    import django  # type: ignore[import-untyped]
    from django.conf import settings  # type: ignore[import-untyped]
    from django.core.management import call_command  # type: ignore[import-untyped]
    from django.db import connections  # type: ignore[import-untyped]

    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": conn.info.dbname,
        "HOST": conn.info.host,
        "PORT": conn.info.port,
        "USER": conn.info.user,
        "PASSWORD": conn.info.password,
    }
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        ROOT_URLCONF="page",
        ALLOWED_HOSTS=["testserver"],
        LOGGING_CONFIG=None,
    )
    django.setup()
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.mark.usefixtures("django")
def test_django_commits_user_and_email_together_or_neither(
    run: Run, conn: psycopg.Connection
) -> None:
    from django.test import Client  # type: ignore[import-untyped]

    run("Django 1")
    client = Client()
    done = client.post("/signup", data=ANA, content_type="application/json")
    assert done.status_code == 201
    refused = client.post(
        "/signup", data={**NOBODY, "name": "Bea"}, content_type="application/json"
    )
    assert (refused.status_code, refused.json()) == (
        422,
        {"error": "recipient_email is not an email address"},
    )
    assert (users(conn, "auth_user"), emails(conn)) == (1, [WELCOME])


def test_the_fixture_of_the_page_migrates_a_database(
    run: Run, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_DATABASE_URL", empty_database_url)
    fixture: Any = run("Testing 1")["migrated_database_url"]
    url = fixture._get_wrapped_function()()
    with psycopg.connect(url) as connection:
        assert emails(connection) == []


@pytest.mark.parametrize("name", ["Testing 2", "Testing 3"])
def test_the_tests_of_the_page_pass(run: Run, name: str) -> None:
    found = [value for key, value in run(name).items() if key.startswith("test_")]
    assert len(found) == 1
    found[0]()


def test_the_pages_name_everything_that_the_testing_module_exports() -> None:
    clock = set(re.findall(r"^\| `(\w+)\(connection", PAGE, re.MULTILINE))
    assert clock <= set(testing.__all__)
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    others = set(testing.__all__) - clock
    assert [name for name in others if not re.search(rf"\b{name}\b", page)] == []


def test_a_worker_in_a_thread_stops_when_it_is_asked_to(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAILGRES_PROVIDERS", "capture")
    assert not run("A worker in your process 1")["thread"].is_alive()


def test_a_drain_in_the_process_of_the_application_sends_due_emails(
    run: Run,
    conn: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MAILGRES_PROVIDERS", "capture")
    run("psycopg 1")
    run("A worker in your process 2")
    assert capsys.readouterr().out == "1 1 0 0\n"
    assert emails(conn) == [("welcome_user", "ana@example.com", "sent")]


def test_the_tree_of_the_page_has_classes_that_exist() -> None:
    (tree,) = (text for kind, text in BLOCK.findall(SECTIONS["Errors"]) if kind == "text")
    for name in re.findall(r"[A-Z]\w+", re.sub(r"  +.*", "", tree)):
        assert issubclass(getattr(errors, name), errors.MailgresError)


@pytest.mark.parametrize("base", ["RequestRefused", "ActionRefused"])
def test_the_sqlstates_of_the_page_are_the_range_of_the_class(base: str) -> None:
    states = [cls.sqlstate or "" for cls in getattr(errors, base).__subclasses__()]
    assert f"| `{base}` | `{min(states)}` to `{max(states)}` |" in PAGE


def test_no_block_of_the_python_page_is_left_out() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in BLOCKS if f'"{name}"' not in source] == []
    assert {kind for kind, _ in BLOCK.findall(PAGE)} == {"python", "sql", "text"}
