"""An outage of the database is one line in the log, and its end is another."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pytest

from mailgres.outage import Outage, is_away
from worker.harness import Process, WorkerHarness, until
from worker.restartable import RestartableHarness
from worker.test_outage import TERMINATE, restartable

__all__ = ["restartable"]


def lines(process: Process, *least: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in process.log.splitlines() if line.endswith("}")]
    return [line for line in found if line["level"] in (least or ("warning", "error", "critical"))]


def events(process: Process) -> list[str | None]:
    return [line.get("event") for line in lines(process)]


@pytest.mark.parametrize(
    "arguments", [("worker",), pytest.param(("serve",), marks=pytest.mark.long)]
)
def test_an_outage_of_the_database_is_logged_at_its_start_and_end(
    restartable: RestartableHarness, arguments: tuple[str, ...]
) -> None:
    restartable.variables = {
        "MAILGRES_SERVE_SECRET": "a-secret-for-the-tests",
        "MAILGRES_SERVE_PORT": "0",
        "MAILGRES_STATEMENT_TIMEOUT": "2s",
    }
    with restartable.script(*arguments) as process:
        until(lambda: "WorkerStarted" in process.log, "it runs")
        restartable.switch_off()
        until(lambda: "DatabaseLost" in process.log, "it says so")
        lost = time.monotonic()
        until(lambda: time.monotonic() - lost > 8, "everything in it has noticed")
        restartable.switch_on()
        until(lambda: "DatabaseBack" in process.log, "it says so")
        if arguments == ("worker",):
            restartable.enqueue()
            until(lambda: restartable.statuses() == {"sent": 1}, "it works again")
    assert events(process) == ["DatabaseLost", "DatabaseBack"], process.log
    back = lines(process)[-1]
    assert back["seconds"] >= 8
    assert back["failures"] > 1


def test_every_batch_is_one_log_line(harness: WorkerHarness) -> None:
    harness.fill(7)
    with harness.script("worker") as process:
        until(lambda: harness.statuses() == {"sent": 7}, "all are sent")
        process.stop()
    found = [line for line in lines(process, "info") if line.get("event") == "BatchFinished"]
    assert sum(line["sent"] for line in found) == 7
    assert all(line["emails"] == line["sent"] for line in found)
    assert {tuple(line["providers"]) for line in found} == {("capture",)}
    assert {line["action"] for line in found} == {"finish"}


def test_cut_connections_are_logged_as_an_outage_of_two_lines(harness: WorkerHarness) -> None:
    with harness.script("worker") as process:
        until(lambda: "WorkerStarted" in process.log, "it runs")
        harness.run(TERMINATE)
        until(lambda: "DatabaseBack" in process.log, "it says so")
    assert set(events(process)) == {"DatabaseLost", "DatabaseBack"}


def test_an_answer_from_before_the_outage_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    asked = time.monotonic()
    outage.failed(psycopg.OperationalError("gone"))
    outage.failed(psycopg.OperationalError("gone"))
    outage.answered(asked)
    assert [each.getMessage() for each in caplog.records] == ["the database is away: gone"]
    outage.answered(time.monotonic())
    outage.answered(time.monotonic())
    assert len(caplog.records) == 2
    assert vars(caplog.records[1])["failures"] == 2


def test_an_error_of_a_statement_is_no_outage() -> None:
    assert not is_away(psycopg.errors.QueryCanceled())
    assert not is_away(psycopg.errors.UniqueViolation())
    assert is_away(psycopg.errors.AdminShutdown())
    assert is_away(psycopg.errors.ConnectionFailure())
