"""The doctor looks at the server, the way to it, and what its user may do and see."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote, urlsplit

import pytest
from psycopg.sql import Identifier

from doctor.harness import DoctorHarness, login
from mailgres.doctor import server
from mailgres.doctor.finding import DoctorContext
from mailgres.settings import Settings
from support.postgres import Server, database_name
from worker.test_pgbouncer import PGBOUNCER, pooled_url

__all__ = ["pooled_url"]


def test_doctor_accepts_a_supported_version(harness: DoctorHarness) -> None:
    assert harness.findings("postgresql") == []


class Reported(DoctorContext):
    """A server that says something else of itself."""

    def one(self, query: str, **parameters: object) -> dict[str, object]:
        return {**super().one(query, **parameters), **self.lie}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("lie", "severity", "words"),
    [
        ({"number": 140012, "version": "PostgreSQL 14.12"}, "error", "14.12 is too old"),
        ({"number": 990000, "version": "PostgreSQL 99"}, "warning", "not tested with"),
        ({"standby": True}, "error", "standby"),
    ],
)
def test_doctor_reports_servers_that_are_not_supported(
    harness: DoctorHarness, lie: dict[str, object], severity: str, words: str
) -> None:
    context = Reported(Settings(database_url=harness.url), harness.conn)
    object.__setattr__(context, "lie", lie)
    (found,) = server.version(context)
    assert found.severity == severity
    assert words in found.message


# --- the clock


@pytest.mark.parametrize(
    ("off", "severity", "words"),
    [
        (0.5, None, ""),
        (10, "warning", "the database's clock is 10 s behind"),
        (-10, "warning", "the database's clock is 10 s ahead of"),
        (10_000, "error", "3 h behind"),
    ],
)
def test_doctor_reports_a_clock_that_differs(
    harness: DoctorHarness, off: float, severity: str | None, words: str
) -> None:
    context = DoctorContext(Settings(), harness.conn, clock=lambda: time.time() + off)
    found = list(server.clock(context))
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(words in one.message for one in found)


def test_a_slow_answer_is_no_wrong_clock(harness: DoctorHarness) -> None:
    now = time.time()
    times = iter([now - 30, now + 20])  # the answer came somewhere in these 50 s
    context = DoctorContext(Settings(), harness.conn, clock=lambda: next(times))
    assert list(server.clock(context)) == []


# --- the pooler


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_doctor_detects_a_transaction_pooler(harness: DoctorHarness, pooled_url: str) -> None:
    pooled = replace(harness, url=pooled_url)
    found = pooled.finding("pooler")
    assert found.severity == "info"
    assert "transaction pooler" in found.message
    assert "5432" in (found.fix or "")
    worker = {"providers": "smtp", "listen": "on"}
    assert pooled.finding("pooler", **worker).severity == "error"


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_every_check_of_doctor_runs_through_a_pooler(
    harness: DoctorHarness, pooled_url: str
) -> None:
    pooled = replace(harness, url=pooled_url)
    for check in ("schema-drift", "grants", "transactions", "stuck-emails", "privileges"):
        assert pooled.findings(check) == []


def test_doctor_reports_no_pooler_where_there_is_none(harness: DoctorHarness) -> None:
    assert harness.findings("pooler") == []
    assert harness.findings("pooler", listen="on") == []


# --- privileges


@pytest.fixture
def stranger(server: Server, harness: DoctorHarness) -> Iterator[DoctorHarness]:
    """A role that may connect and nothing else."""
    with login(harness, server) as other:
        yield other


def test_doctor_says_what_a_role_without_rights_cannot_check(
    harness: DoctorHarness, stranger: DoctorHarness
) -> None:
    checks = ("schema-version", "stuck-emails", "scheduler", "providers")
    for check in checks:
        found = stranger.finding(check)
        assert found.severity == "info"
        assert found.message.startswith("not checked: ")
    role = stranger.conn.info.user
    harness.run(f"GRANT mailgres_analyst TO {role}")
    harness.run(f"GRANT USAGE ON SCHEMA mailgres TO {role}")
    harness.run(f"GRANT SELECT ON mailgres.schema_version, mailgres.schema_releases TO {role}")
    found = stranger.finding("privileges")
    assert found.severity == "error"
    assert found.message.startswith(f"{role} cannot process the queue: no mailgres.claim and ")
    harness.fix(found)  # as its owner
    assert stranger.findings("privileges") == []


def test_the_worker_role_may_run_doctor(harness: DoctorHarness, stranger: DoctorHarness) -> None:
    harness.run(f"GRANT mailgres_worker TO {stranger.conn.info.user}")
    for check in ("privileges", "schema-version", "schema-drift", "grants", "row-security"):
        assert stranger.findings(check) == []
    found = stranger.finding("stuck-emails")
    assert found.message.startswith("not checked: permission denied")
    assert (found.fix or "").startswith("run it as a member of mailgres_operator")


def test_a_fix_that_needs_an_administrator_is_not_run_by_accident(stranger: DoctorHarness) -> None:
    fix = stranger.finding("schema-version").fix or ""
    done = subprocess.run(
        ["/bin/sh", "-c", fix],
        env={"DATABASE_URL": stranger.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert "ADMIN_DATABASE_URL: set it to the URL of this database for an admin" in done.stderr


def test_doctor_quotes_names_of_roles_in_its_fixes(harness: DoctorHarness, server: Server) -> None:
    with login(harness, server) as other:
        strange = other.conn.info.user + ' "it\'s"'
        named = Identifier(strange).as_string(None)
        harness.run(f"CREATE ROLE {named} LOGIN PASSWORD 'x'")
        try:
            parts = urlsplit(harness.url)
            netloc = f"{quote(strange)}:x@{parts.hostname}:{parts.port}"
            strangely = replace(other, url=parts._replace(netloc=netloc).geturl())
            harness.fix(strangely.finding("schema-version"))
            assert strangely.findings("schema-version") == []
        finally:
            harness.run(f"DROP ROLE {named}")


def test_transactions_of_others_are_named_as_unseen(
    harness: DoctorHarness, stranger: DoctorHarness
) -> None:
    found = stranger.finding("transactions")
    assert found.severity == "info"
    assert "which this user may not see" in found.message
    harness.fix(found)  # as an administrator
    assert stranger.findings("transactions") == []


def test_doctor_reports_missing_roles(harness: DoctorHarness) -> None:
    """Renamed only inside a transaction: other tests need the role."""
    context = DoctorContext(Settings(), harness.conn)
    with harness.conn.transaction(force_rollback=True):
        harness.run("ALTER ROLE mailgres_producer RENAME TO mailgres_test_renamed")
        (found,) = server.privileges(context)
    assert (found.severity, found.message) == ("warning", "the role mailgres_producer is missing")
    assert "CREATE ROLE mailgres_producer NOLOGIN" in (found.fix or "")


@pytest.mark.parametrize(
    "settings",
    [
        ["ALTER DATABASE {database} SET"],
        ["ALTER ROLE {role} SET"],
        ["ALTER ROLE {role} IN DATABASE {database} SET"],
        ["ALTER ROLE {role} SET", "ALTER DATABASE {database} SET"],
    ],
)
def test_doctor_fixes_a_read_only_default_of_database_or_role(
    harness: DoctorHarness, stranger: DoctorHarness, settings: list[str]
) -> None:
    """The command resets it for the database or the role, although it applies to itself, too."""
    names = {"database": database_name(harness.url), "role": stranger.conn.info.user}
    assert stranger.findings("postgresql") == []
    for setting in settings:
        harness.run(f"{setting.format(**names)} default_transaction_read_only = on")
    found = stranger.finding("postgresql")
    assert (found.severity, found.message) == (
        "error",
        "transactions are read-only by default here",
    )
    of_database = any("ALTER DATABASE" in setting for setting in settings)
    assert ("ADMIN_DATABASE_URL" in (found.fix or "")) is of_database, "the role may not alter it"
    (harness if of_database else stranger).fix(found)
    assert stranger.findings("postgresql") == []


def test_doctor_names_the_url_whose_options_make_the_connection_read_only(
    harness: DoctorHarness,
) -> None:
    url = f"{harness.url}?options=-cdefault_transaction_read_only%3Don"
    found = replace(harness, url=url).finding("postgresql")
    assert "from the options in the URL" in (found.fix or "")
