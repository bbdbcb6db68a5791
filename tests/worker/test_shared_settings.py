"""Routes, limits and defaults are everybody's: a worker that starts rewrites none of them."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from e2e.harness import E2eHarness
from mailgres.errors import MailgresError
from mailgres.settings import load
from mailgres.worker import open_worker
from support.postgres import Connect
from support.program import Program
from worker.harness import until

SHARED = """
    SELECT jsonb_build_array(
        (SELECT jsonb_agg(to_jsonb(x) - 'initial' ORDER BY x.route) FROM mailgres.routes x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.route, x.position)
         FROM mailgres.route_providers x),
        (SELECT jsonb_agg(to_jsonb(x) ORDER BY x.name) FROM mailgres.buckets x),
        (SELECT to_jsonb(x) - 'initial' FROM mailgres.settings x))
"""
VERSIONS = """
    SELECT 'r', ctid::text, xmin::text, xmax::text FROM mailgres.routes
    UNION ALL SELECT 'p', ctid::text, xmin::text, xmax::text FROM mailgres.route_providers
    UNION ALL SELECT 'a', ctid::text, xmin::text, xmax::text FROM mailgres.providers
    UNION ALL SELECT 's', ctid::text, xmin::text, xmax::text FROM mailgres.settings
    UNION ALL SELECT 'b', ctid::text, xmin::text, xmax::text FROM mailgres.buckets
    ORDER BY 1, 2
"""
ROUTE = """
    SELECT array_agg(provider ORDER BY position) FROM mailgres.route_providers WHERE route = %s
"""
LIVE = """
    SELECT count(*) FROM mailgres.workers WHERE stopped_at IS NULL AND %s = ANY (providers)
"""
KEYS = {
    "resend_api_key": "re_123456789",
    "smtp_url": "smtp://127.0.0.1:1?tls=none",
    "resend_acme_api_key": "re_987654321",
}


@pytest.fixture
def harness(conn: psycopg.Connection, database_url: str, tmp_path: Path) -> E2eHarness:
    """A queue as the migration made it; workers have credentials for every provider."""
    harness = E2eHarness(conn, database_url, tmp_path)
    harness.set(**KEYS)
    return harness


@pytest.fixture
def mailgres(database_url: str) -> Program:
    """The console script, for operators."""
    return Program(database_url)


def start(harness: E2eHarness, *providers: str, **variables: str) -> None:
    """Let a worker start, and stop at once."""
    mine = {f"MAILGRES_{name.upper()}": text for name, text in variables.items()}
    if providers:
        mine["MAILGRES_PROVIDERS"] = ",".join(providers)
    with open_worker(load(harness.variables | mine), janitors=False):
        pass


def refusal(harness: E2eHarness, *providers: str) -> MailgresError:
    with pytest.raises(MailgresError) as raised:
        start(harness, *providers)
    return raised.value


def reported(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [each for each in caplog.records if getattr(each, "event", None) == event]


def test_the_first_worker_sets_the_route_that_the_migration_made_and_says_so(
    harness: E2eHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mailgres"):
        start(harness, "resend", "smtp")
    assert harness.value(ROUTE, "default") == ["resend", "smtp"]
    (line,) = reported(caplog, "RouteSet")
    assert line.getMessage() == "the route default is now resend, smtp"


def test_a_worker_with_other_providers_refuses_to_start_and_changes_nothing(
    harness: E2eHarness,
) -> None:
    start(harness, "smtp")
    before = harness.value(SHARED)
    error = refusal(harness, "resend")
    assert "the route default uses the provider smtp" in error.message
    assert "mailgres routes set default resend" in str(error.hint)
    assert harness.value(SHARED) == before


def test_a_worker_with_one_more_provider_registers_it_and_leaves_the_default_route(
    harness: E2eHarness, mailgres: Program, caplog: pytest.LogCaptureFixture
) -> None:
    start(harness, "smtp")
    start(harness, "resend", "smtp")
    assert harness.value(ROUTE, "default") == ["smtp"]
    (line,) = reported(caplog, "SettingNotApplied")
    assert "mailgres routes set default resend smtp" in line.getMessage()
    mailgres("routes", "set", "default", "resend", "smtp")
    caplog.clear()
    start(harness, "resend", "smtp")
    assert harness.value(ROUTE, "default") == ["resend", "smtp"]
    assert reported(caplog, "SettingNotApplied") == []


def test_a_route_that_an_operator_set_to_capture_is_not_changed_by_a_worker(
    harness: E2eHarness, mailgres: Program
) -> None:
    mailgres("routes", "set", "default", "capture")
    assert "the route default uses the provider capture" in refusal(harness, "smtp").message
    assert harness.value(ROUTE, "default") == ["capture"]


def test_a_worker_without_a_new_account_restarts_while_another_has_it(
    harness: E2eHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a roll-out of the account would stop each worker that is restarted meanwhile."""
    start(harness, "resend")
    with open_worker(load(harness.variables | {"MAILGRES_PROVIDERS": "resend,resend-acme"})):
        until(lambda: harness.value(LIVE, "resend-acme"), "its worker has a heartbeat")
        start(harness, "resend")
    assert "emails of the route resend-acme are left to other workers" in caplog.text
    assert "resend-acme" in refusal(harness, "resend").message, "nobody has it any more"


def test_a_worker_with_other_defaults_says_so_and_changes_nothing(
    harness: E2eHarness, mailgres: Program, caplog: pytest.LogCaptureFixture
) -> None:
    start(harness, retry_policy="smtp")
    before = harness.value(SHARED)
    start(harness, retry_policy="patient", expires_after="2d")
    assert harness.value(SHARED) == before
    said = [line.getMessage() for line in reported(caplog, "SettingNotApplied")]
    assert "mailgres policies default patient" in said[0]
    assert "mailgres policies default --expires-after 2d" in said[1]
    mailgres("policies", "default", "patient", "--expires-after", "2d")
    caplog.clear()
    start(harness, retry_policy="patient", expires_after="2d")
    assert reported(caplog, "SettingNotApplied") == []
    defaults = "SELECT retry_policy, expires_after = interval '2 days' FROM mailgres.settings"
    assert harness.conn.execute(defaults).fetchone() == ("patient", True)


def test_a_rate_limit_that_an_operator_set_stays(
    harness: E2eHarness, mailgres: Program, caplog: pytest.LogCaptureFixture
) -> None:
    start(harness, "smtp", rate_limit="100/m")
    mailgres("providers", "limit", "smtp", "--rate", "1/s")
    start(harness, "smtp", rate_limit="100/m")
    limit = "SELECT per_second FROM mailgres.buckets WHERE name = 'emails:smtp'"
    assert harness.value(limit) == 1
    (line,) = reported(caplog, "SettingNotApplied")
    assert "mailgres providers limit smtp --rate 100/m" in line.getMessage()


def test_a_restart_with_the_same_settings_writes_and_says_nothing(
    harness: E2eHarness, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"retry_policy": "smtp", "rate_limit": "100/m"}
    start(harness, "resend", "smtp", "resend-acme", **given)
    before = harness.conn.execute(VERSIONS).fetchall()
    caplog.clear()
    with caplog.at_level(logging.INFO, "mailgres"):
        start(harness, "resend", "smtp", "resend-acme", **given)
    assert harness.conn.execute(VERSIONS).fetchall() == before
    assert caplog.records == []


def test_of_two_first_workers_at_once_one_sets_the_route_and_the_other_refuses(
    harness: E2eHarness,
) -> None:
    def attempt(provider: str) -> str | None:
        try:
            start(harness, provider)
        except MailgresError:
            return None
        return provider

    with ThreadPoolExecutor(2) as pool:
        started = [each for each in pool.map(attempt, ("resend", "smtp")) if each]
    assert harness.value(ROUTE, "default") == started


@pytest.mark.parametrize("command", ["worker", "process", "serve"])
def test_every_command_that_works_the_queue_refuses_a_route_of_others(
    harness: E2eHarness, command: str
) -> None:
    start(harness, "smtp")
    before = harness.value(SHARED)
    harness.use("resend", serve_secret="a-secret-for-the-tests", serve_port="0")
    with harness.script(command) as process:
        assert process.popen.wait(60) == 1
        assert "the route default uses the provider smtp" in process.log
    assert harness.value(SHARED) == before


WORKERS = "SELECT worker, alive, providers FROM email_workers"


@pytest.mark.parametrize("arguments", [("worker",), ("worker", "--processes", "2")])
def test_a_stopped_worker_deregisters(harness: E2eHarness, arguments: tuple[str, ...]) -> None:
    count = int(arguments[-1]) if len(arguments) > 1 else 1
    harness.use("smtp")
    with harness.script(*arguments) as process:
        until(lambda: len(harness.rows(WORKERS)) == count, "all are seen")
        assert all(row.alive and row.providers == ["smtp"] for row in harness.rows(WORKERS))
        process.popen.terminate()
        assert process.popen.wait(60) == 0, process.log
    assert harness.rows(WORKERS) == []


def test_a_run_that_ends_signs_off_and_is_remembered(harness: E2eHarness) -> None:
    harness.use("smtp")
    with harness.script("process") as process:
        process.summary()
    assert harness.rows(WORKERS) == []
    found = "SELECT providers, on_demand, stopped_at IS NOT NULL FROM mailgres.workers"
    assert harness.conn.execute(found).fetchall() == [(["smtp"], True, True)]


def test_a_worker_says_what_it_is_connected_to_and_what_it_sends_through(
    harness: E2eHarness, connect: Connect
) -> None:
    harness.use("smtp")
    with harness.script("worker") as process:
        until(lambda: "WorkerStarted" in process.log, "it says so")
    lines: list[dict[str, Any]] = [json.loads(line) for line in process.log.splitlines()]
    (line,) = [line for line in lines if line.get("event") == "WorkerStarted"]
    info = connect(harness.url).info
    assert line["database"] == f"{info.host}:{info.port}/{info.dbname}"
    assert line["user"] == info.user
    assert line["providers"] == ["smtp"]
    assert line["message"] == f"connected to {line['database']}, sends through smtp"
    assert info.password not in process.log
