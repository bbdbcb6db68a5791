"""The plugin of pytest, in runs of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from support.postgres import Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "signup"
TWO_TESTS = """
import psycopg, mailgres, pytest

urls = []

@pytest.mark.parametrize("number", range(2))
def test_it(mailgres_database, outbox, number):
    with psycopg.connect(mailgres_database) as connection:
        mailgres.enqueue(connection, "welcome_user", "ana@example.com", {"name": "Ana"})
    assert outbox.wait_for(to="ana@example.com").is_sent
    assert len(outbox) == 1
    urls.append(mailgres_database)

def test_urls():
    print("DATABASES", *{url.rpartition("/")[2] for url in urls})
"""


def run(directory: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as the developer of an application would, with the plugin of the installation."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-W", "error",
         "-p", "no:xdist", *arguments],
        cwd=directory,
        env=environ | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


def databases(server: Server) -> set[str]:
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
    return {row[0] for row in rows}


@pytest.mark.parametrize(("scope", "count"), [("", 2), ("function", 2), ("session", 1)])
def test_tests_of_an_application_have_a_database_each_or_share_one(
    server: Server, tmp_path: Path, scope: str, count: int
) -> None:
    (tmp_path / "test_it.py").write_text(TWO_TESTS)
    ini = f"[pytest]\nmailgres_database_scope = {scope}\n" if scope else "[pytest]\n"
    (tmp_path / "pytest.ini").write_text(ini)
    done = run(tmp_path, server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    names = done.stdout.partition("DATABASES ")[2].splitlines()[0].split()
    assert len(names) == count
    assert not databases(server) & set(names)


def test_test_databases_are_dropped_when_a_test_fails(server: Server, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(mailgres_database):\n    print('URL', mailgres_database)\n    assert False\n"
    )
    done = run(tmp_path, server.url)
    assert done.returncode == 1
    name = done.stdout.partition("URL ")[2].split()[0].rpartition("/")[2]
    assert name.startswith("mailgres_test_")
    assert name not in databases(server)


def test_the_pytest_plugin_refuses_an_unknown_database_scope(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(mailgres_database): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmailgres_database_scope = module\n")
    done = run(tmp_path, server.url)
    assert "mailgres_database_scope is 'module': give function or session." in done.stdout + (
        done.stderr
    )
    assert done.returncode != 0


def test_the_pytest_plugin_reports_a_role_that_may_not_create_databases(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(mailgres_database): pass\n")
    with server.role() as role, psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"ALTER ROLE {role} LOGIN PASSWORD 'a'")
        host = server.url.rpartition("@")[2]
        done = run(tmp_path, f"postgresql://{role}:a@{host}")
    assert "The role of DATABASE_URL may not create databases for tests" in done.stdout


def test_without_database_url_the_pytest_plugin_starts_a_server(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TWO_TESTS)
    done = run(tmp_path, "")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pytest_plugin_imports_nothing_before_a_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'mailgres.testing.plugin' in sys.modules\n"
        "    heavy = ('psycopg', 'sqlalchemy', 'alembic', 'mailgres.worker', 'mailgres.api')\n"
        "    assert not [name for name in heavy if name in sys.modules]\n"
    )
    done = run(tmp_path, "")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_suite_of_the_example_passes(server: Server) -> None:
    done = run(EXAMPLE, server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
