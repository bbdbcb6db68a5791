"""deploy/pg_cron: the jobs are the janitors', and a real pg_cron runs them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import pg_cron_jobs
from deploy.files import read
from mailgres import embedded, migrate
from mailgres.embedded import EmbeddedError, binaries
from mailgres.janitor import JANITORS

SETTINGS = {
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": "postgres",
    "cron.use_background_workers": "on",
    "synchronous_commit": "off",
}
WAIT_SECONDS = 120.0
"""Seconds; pg_cron starts jobs at the full minute."""


def test_the_file_of_pg_cron_jobs_is_current() -> None:
    assert read("pg_cron", "janitors.sql") == pg_cron_jobs.text(), "run `make docs`"


def test_every_janitor_has_a_job_except_those_that_each_worker_runs() -> None:
    jobs = set(re.findall(r"'mailgres-(\w+)'", read("pg_cron", "janitors.sql"))) - {"history"}
    assert jobs == {one.name for one in JANITORS.values() if one.locked}


def test_the_guide_on_pg_cron_shows_the_tested_settings() -> None:
    shown = dict(re.findall(r"ALTER SYSTEM SET (\S+) = '?(\w+)'?\"", read("pg_cron", "README.md")))
    shown["cron.database_name"] = SETTINGS["cron.database_name"]
    assert shown.items() <= SETTINGS.items()


@pytest.fixture(scope="module")
def server_url(migrations: Path) -> Iterator[str]:
    """A server with pg_cron, and the queue in the database that it looks after."""
    try:
        found = binaries.find(os.environ)
    except EmbeddedError as error:
        pytest.skip(str(error))
    if not (found.directory.parent / "lib" / "pg_cron.so").exists():
        pytest.skip(f"PostgreSQL {found.version} of {found.directory} has no pg_cron")
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        with embedded.server(Path(directory), settings=SETTINGS) as url:
            migrate.upgrade(url, directory=migrations)
            with psycopg.connect(url) as connection:
                connection.execute("CREATE EXTENSION pg_cron")
            yield url


@pytest.fixture
def login_url(server_url: str) -> str:
    """The login role of workers, with what the guide grants."""
    (grant,) = re.findall(r"-c \"(GRANT .*)\"$", read("pg_cron", "README.md"), re.MULTILINE)
    with psycopg.connect(server_url) as connection:
        connection.execute(read("roles.sql").encode())
        connection.execute("ALTER ROLE mailgres_worker_login PASSWORD 'x'")
        connection.execute(grant.encode())
    parts = urlsplit(server_url)
    return parts._replace(netloc=f"mailgres_worker_login:x@{parts.hostname}:{parts.port}").geturl()


RUNS = """
    SELECT jobname, array_agg(DISTINCT status), max(return_message)
    FROM cron.job LEFT JOIN cron.job_run_details USING (jobid)
    WHERE status IN ('succeeded', 'failed') GROUP BY jobname
"""


def wait_for(connection: psycopg.Connection, jobs: set[str]) -> dict[str, Any]:
    """Return the result of each job when all have run."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        runs = {row[0]: row[1:] for row in connection.execute(RUNS)}
        if jobs <= runs.keys() or time.monotonic() > deadline:
            return runs
        time.sleep(0.5)


@pytest.mark.long
def test_a_real_pg_cron_does_the_upkeep(server_url: str, login_url: str) -> None:
    with (
        psycopg.connect(login_url, autocommit=True) as login,
        psycopg.connect(server_url, autocommit=True) as admin,
    ):
        login.execute("SET mailgres.alert_email = 'ops@example.com'")
        login.execute(read("pg_cron", "janitors.sql").encode())
        jobs = set(re.findall(r"mailgres-\w+", read("pg_cron", "janitors.sql")))
        jobs -= {"mailgres-history"}  # by night
        put_something_to_do(admin)
        runs = wait_for(login, jobs)
        assert {
            job: runs.get(job) for job in jobs if runs.get(job, [None])[0] != ["succeeded"]
        } == {}
        assert done(admin) == {
            "due": "pending true",
            "over": "failed false",
            "old": None,
            "alert": "mailgres_alert",
        }
        login.execute(read("pg_cron", "unschedule.sql").encode())
        assert login.execute("SELECT count(*) FROM cron.job").fetchone() == (0,)


def put_something_to_do(admin: psycopg.Connection) -> None:
    """An email that is due, one that is too late, one for the archive, and a dead one."""
    enqueue = (
        "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', p_correlation_id => %s)"
    )
    for name in ("due", "over", "old", "dead"):
        admin.execute(enqueue, (name,))
    late = "UPDATE email_queue SET ready = false, next_retry_at = now() - interval '1 s'"
    admin.execute(f"{late} WHERE correlation_id = 'due'")
    admin.execute(
        "UPDATE email_queue SET expires_at = now() - interval '1 s' WHERE correlation_id = 'over'"
    )
    die = """UPDATE email_queue SET status = 'failed', ready = false, dead_reason = 'permanent',
                 dead_at = now() - %s::interval, error_message = 'no such mailbox'
             WHERE correlation_id = %s"""
    admin.execute(die, ("8 days", "old"))
    admin.execute(die, ("1 minute", "dead"))


def done(admin: psycopg.Connection) -> dict[str, Any]:
    found: dict[str, str] = dict(
        admin.execute("SELECT correlation_id, status || ' ' || ready FROM email_queue").fetchall()
    )
    alert = admin.execute(
        "SELECT template_type FROM email_queue WHERE recipient_email LIKE 'ops@%'"
    )
    row = alert.fetchone()
    return {
        **{name: found.get(name) for name in ("due", "over", "old")},
        "alert": row[0] if row else None,
    }
