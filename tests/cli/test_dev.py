"""`mailgres dev` and `mailgres demo` through the console script: what they do, and what they leave.

A developer's shell may name a production database in any of the ways that programs know. It stays
as it is, whatever happens to the program.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from doubles import smtp as smtp_double
from doubles.smtp import SmtpDouble
from embedded.harness import open_directory
from mailgres.doctor import examine
from mailgres.settings import Settings
from support.dump import OF_A_LIVE_WORKER, dump
from worker.harness import PROGRAM, WorkerHarness, until

ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')"
CAPTURED = "SELECT count(*) FROM mailgres.captured"


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield where `dev` keeps its database; the account of the server can enter it."""
    directory = open_directory()
    yield directory
    until(lambda: not list(directory.rglob("postmaster.pid")), "its server has ended")
    shutil.rmtree(directory)


@pytest.fixture
def smtp() -> Iterator[SmtpDouble]:
    with smtp_double.serve(SmtpDouble()) as double:
        yield double


@pytest.fixture
def production(
    conn: psycopg.Connection, database_url: str, tmp_path: Path, smtp: SmtpDouble
) -> Iterator[WorkerHarness]:
    """A queue in use: its route sends by SMTP, and a worker runs."""
    harness = WorkerHarness(conn, database_url, tmp_path)
    harness.variables = {
        "MAILGRES_PROVIDERS": "smtp",
        "MAILGRES_SMTP_URL": smtp.url,
        "MAILGRES_FROM_EMAIL": "noreply@example.com",
    }
    with harness.script("worker") as worker:
        until(lambda: harness.value("SELECT count(*) FROM mailgres.workers"), "the worker lives")
        yield harness
        assert worker.alive(), worker.log


def shell_of(harness: WorkerHarness, directory: Path) -> dict[str, str]:
    """A shell in which everything points to the production database, and a file that does, too."""
    parts = urlsplit(harness.url)
    settings = {"database_url": harness.url, "providers": ["smtp"], "retry_policy": "patient"}
    lines = (f"{name} = {json.dumps(value)}" for name, value in settings.items())
    (directory / "mailgres.toml").write_text("\n".join(lines))
    (directory / "mailgres.toml").chmod(0o600)
    (directory / ".env").write_text(f"DATABASE_URL={harness.url}\n")
    return {
        **os.environ,
        **harness.variables,
        **dict.fromkeys(("DATABASE_URL", "MAILGRES_DATABASE_URL", "SUPABASE_DB_URL"), harness.url),
        "MAILGRES_PROFILE": "gateway",
        "MAILGRES_CONFIG": str(directory / "mailgres.toml"),
        "PGHOST": parts.hostname or "",
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(parts.port),
        "PGUSER": parts.username or "",
        "PGPASSWORD": parts.password or "",
        "PGDATABASE": parts.path[1:],
        "PGSERVICE": "production",
        "PGOPTIONS": "-c default_transaction_read_only=on",
    }


class Dev:
    """A `mailgres dev` that runs."""

    def __init__(self, process: subprocess.Popen[str], said: list[str]) -> None:
        self.process = process
        self.said = said

    @property
    def url(self) -> str:
        """The URL of its database, as it says it."""
        (line,) = [line for line in self.said if line.startswith("DATABASE_URL=")]
        return line.removeprefix("DATABASE_URL=").strip()

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running(arguments: tuple[str, ...], env: dict[str, str], directory: Path) -> Iterator[Dev]:
    """Run `mailgres dev` until it is ready."""
    with subprocess.Popen(
        [PROGRAM, "dev", *arguments],
        env=env,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            said: list[str] = []
            while not said or said[-1] != "Ctrl-C stops it.\n":
                said.append(process.stdout.readline())
                assert said[-1], f"it ended: {said}"
            yield Dev(process, said)
        finally:
            process.kill()


def refused(url: str, directory: Path) -> str:
    """Return what `mailgres dev` says when it refuses a database."""
    done = subprocess.run(
        [PROGRAM, "dev", "--database-url", url],
        env=dict(os.environ),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_dev_in_a_shell_of_production_changes_nothing_there(
    production: WorkerHarness, smtp: SmtpDouble, place: Path, tmp_path: Path
) -> None:
    """Not while it runs, nor after Ctrl-C or SIGKILL; the worker there goes on sending."""
    shell = shell_of(production, tmp_path)
    before = dump(production.url, without=OF_A_LIVE_WORKER)
    for number in (signal.SIGKILL, signal.SIGINT):
        with running(("--data-dir", str(place)), shell, tmp_path) as dev:
            assert urlsplit(dev.url).port != urlsplit(production.url).port
            with psycopg.connect(dev.url, autocommit=True) as own:
                own.execute(ENQUEUE)
                until(lambda: own.execute(CAPTURED).fetchone() != (0,), "it is captured")
            dev.end(number)
    assert dump(production.url, without=OF_A_LIVE_WORKER) == before
    assert smtp.accepted() == []
    production.enqueue("welcome_user", "ben@example.com")
    until(smtp.accepted, "the worker of production sends")


def test_the_doctor_has_no_remark_about_the_role_and_the_connection_of_dev(
    place: Path, tmp_path: Path
) -> None:
    """The embedded server has only a superuser, and is dev's own."""
    with running(("--data-dir", str(place)), dict(os.environ), tmp_path) as dev:
        with psycopg.connect(dev.url, autocommit=True) as own:
            role = "SELECT role FROM mailgres.workers"
            until(lambda: own.execute(role).fetchone() == ("postgres",), "the worker lives")
        found = examine(Settings(database_url=dev.url), only=("tls", "worker-roles", "worker-tls"))
        assert [one.severity for one in found] == ["ok", "ok", "ok"]
        dev.end()


def test_dev_refuses_a_database_whose_routes_lead_to_another_provider(
    production: WorkerHarness, tmp_path: Path
) -> None:
    before = dump(production.url, without=OF_A_LIVE_WORKER)
    assert "the route default has the provider smtp" in refused(production.url, tmp_path)
    assert dump(production.url, without=OF_A_LIVE_WORKER) == before


def test_dev_makes_no_schema_in_a_database_that_is_named(
    empty_database_url: str, tmp_path: Path
) -> None:
    before = dump(empty_database_url)
    assert "does not have the schema of this version" in refused(empty_database_url, tmp_path)
    assert dump(empty_database_url) == before


def test_dev_leaves_routes_policies_and_defaults_of_a_named_database_as_they_are(
    conn: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    """Also what the shell says about them; the emails are captured."""
    settings = """SELECT jsonb_build_array(
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.route) FROM mailgres.routes x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.route, x.position)
         FROM mailgres.route_providers x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.name) FROM mailgres.providers x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.name) FROM mailgres.retry_policies x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.name) FROM mailgres.buckets x),
        (SELECT to_jsonb(x) FROM mailgres.settings x))"""
    before = conn.execute(settings).fetchone()
    shell = {**os.environ, "MAILGRES_PROFILE": "gateway", "MAILGRES_PROVIDERS": "smtp"}
    with running(("--database-url", database_url), shell, tmp_path) as dev:
        conn.execute(ENQUEUE)
        until(lambda: conn.execute(CAPTURED).fetchone() != (0,), "it is captured")
        assert dev.end() == 0
    assert conn.execute(settings).fetchone() == before
    assert not any("mailgres-tests" in line or "postgres:" in line for line in dev.said)


def test_dev_sends_only_when_it_is_asked_to(smtp: SmtpDouble, place: Path, tmp_path: Path) -> None:
    """And what it was asked for once does not hold the next time."""
    shell = {
        **os.environ,
        "MAILGRES_PROVIDERS": "smtp",
        "MAILGRES_SMTP_URL": smtp.url,
        "MAILGRES_FROM_EMAIL": "noreply@example.com",
    }
    arguments = ("--data-dir", str(place))
    with running((*arguments, "--send"), shell, tmp_path) as dev:
        with psycopg.connect(dev.url, autocommit=True) as own:
            own.execute(ENQUEUE)
            until(smtp.accepted, "it is sent")
        assert dev.end() == 0
    assert any("sent through smtp" in line for line in dev.said)
    with running(arguments, shell, tmp_path) as dev:
        with psycopg.connect(dev.url, autocommit=True) as own:
            own.execute(ENQUEUE)
            until(lambda: own.execute(CAPTURED).fetchone() == (1,), "the other one is captured")
        assert dev.end() == 0
    assert any("No email is sent" in line for line in dev.said)
    assert len(smtp.accepted()) == 1


def test_demo_connects_to_no_server_that_the_shell_names(place: Path, tmp_path: Path) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/production"
    done = subprocess.run(
        [PROGRAM, "demo", "--data-dir", place],
        env={**os.environ, "DATABASE_URL": nowhere, "PGHOSTADDR": "127.0.0.2", "PGSERVICE": "none"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
