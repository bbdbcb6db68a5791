"""`mailgres alerts`, run as a program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from doubles.http_server import Reply, serving
from support.program import Program
from support.queue import Clock, Queue

OPEN = "UPDATE mailgres.providers SET circuit = 'open', reopened = 2 WHERE name = 'capture'"
PARK = """
    UPDATE email_queue
    SET ready = false, parked_since = mailgres.now(), next_retry_at = mailgres.now() + '1 minute'
"""


@pytest.fixture
def clock(queue: Queue) -> Clock:
    return Clock(queue.conn)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    reported: list[Any] = []

    def answer(_method: str, _path: str, _headers: dict[str, str], body: bytes) -> Reply:
        reported.append(json.loads(body))
        return Reply(200, b"")

    with serving(answer) as url:
        yield url, reported


def test_alerts_list_shows_firing_alerts_with_their_runbook(
    mailgres: Program, queue: Queue, clock: Clock
) -> None:
    assert mailgres.run("alerts", "list").stderr == "No alert is firing.\n"
    assert mailgres.json("alerts", "list") == []
    queue.run(OPEN)
    queue.enqueue(tenant_id="acme")
    queue.run(PARK)
    at = f"{clock.now:%Y-%m-%d %H:%M:%S} UTC"
    explain = "mailgres alerts explain"
    assert mailgres("alerts", "list").splitlines() == [
        f"severity  rule          subject  figure      threshold  {'since':{len(at)}}  what to do",
        f"critical  circuit_open  capture  2 openings  0          {at}  {explain} circuit_open",
        f"warning   parked        acme     1 email     0          {at}  {explain} parked",
    ]
    assert [one["rule"] for one in mailgres.json("alerts", "list")] == ["circuit_open", "parked"]


def test_alerts_rules_shows_threshold_window_and_severity(mailgres: Program) -> None:
    found = mailgres.json("alerts", "rules")
    (one,) = [each for each in found if each["name"] == "failure_rate"]
    assert (one["threshold"], one["time_window"], one["severity"]) == (10, 3600, "critical")
    lines = mailgres("alerts", "rules").splitlines()
    assert len(lines) == len(found) + 1
    (line,) = [each for each in lines if each.startswith("quota_80")]
    assert line.split()[1:6] == ["≥", "80", "%", "-", "-"]


def test_alerts_set_changes_only_the_given_values(mailgres: Program) -> None:
    done = mailgres("alerts", "set", "failure_rate", "--threshold", "5", "--window", "30m")
    assert done == "failure_rate: > 5 % over 30m, critical\n"
    assert mailgres("alerts", "set", "parked", "--severity", "info") == "parked: > 0 emails, info\n"
    assert mailgres("alerts", "set", "parked", "--off") == "parked: > 0 emails, off\n"
    assert mailgres("alerts", "set", "parked", "--on") == "parked: > 0 emails, info\n"


def test_a_dry_run_changes_no_alert_rule(mailgres: Program) -> None:
    before = mailgres.json("alerts", "rules")
    assert mailgres("alerts", "set", "parked", "--off", "--dry-run").splitlines() == [
        "parked: > 0 emails, off",
        "Nothing was changed: this was a dry run.",
    ]
    assert mailgres.json("alerts", "rules") == before


def test_alerts_set_refuses_bad_values_with_a_hint(mailgres: Program) -> None:
    what, hint = mailgres.fails("alerts", "set", "failure_rate", "--threshold", "-1")
    assert what == "-1 is not a threshold of failure_rate"
    assert hint == "Give a number of %, 0 or more, at most 100."
    for bad in ("101", "nan", "inf"):
        assert (
            "is not a threshold"
            in mailgres.fails("alerts", "set", "failure_rate", "--threshold", bad)[0]
        )
    what, _ = mailgres.fails("alerts", "set", "dead_letters", "--window", "1h")
    assert what == "dead_letters has no window"
    assert "Give --threshold" in mailgres.misused("alerts", "set", "failure_rate")
    assert "valid float" in mailgres.misused("alerts", "set", "parked", "--threshold", "ten")
    assert "too long" in mailgres.misused("alerts", "set", "backlog", "--window", "8d")
    assert "fatal" in mailgres.misused("alerts", "set", "parked", "--severity", "fatal")


def test_alerts_set_suggests_the_nearest_rule(mailgres: Program) -> None:
    what, hint = mailgres.fails("alerts", "set", "failure_rat", "--off")
    assert what == "there is no alert rule 'failure_rat'"
    assert hint == "Did you mean failure_rate? `mailgres alerts rules` shows all."
    _, hint = mailgres.fails("alerts", "set", "zzz", "--off")
    assert hint.startswith("Known rules: backlog, ")


def test_alerts_check_exits_with_1_only_for_critical_alerts(
    mailgres: Program, queue: Queue
) -> None:
    assert mailgres("alerts", "check") == ""
    queue.enqueue()
    queue.run(PARK)
    assert mailgres("alerts", "check") == "", "a warning can wait"
    queue.run(OPEN)
    done = mailgres.run("alerts", "check")
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["rule", "circuit_open"]
    assert queue.rows("SELECT * FROM mailgres.alerts") == [], "it only looked"


def test_alerts_check_notices_that_no_worker_runs(
    mailgres: Program, queue: Queue, hook: tuple[str, list[Any]]
) -> None:
    """No worker runs that could notify, so `alerts check` does, once."""
    url, reported = hook
    queue.enqueue()
    queue.run("UPDATE email_queue SET next_retry_at = next_retry_at - interval '1 hour'")
    to = {"MAILGRES_ALERT_EMAIL": "admin@example.com", "MAILGRES_ALERT_WEBHOOK": url}
    for _ in range(2):
        done = mailgres.run("alerts", "check", "--notify", **to)
        assert done.returncode == 1
        assert "no_processor" in done.stdout
    (news,) = reported
    assert [one["rule"] for one in news["firing"]] == ["no_processor"]
    alerts = "SELECT count(*) FROM email_queue WHERE template_type = 'mailgres_alert'"
    assert queue.value(alerts) == 1


def test_alerts_check_reports_an_unreachable_database() -> None:
    what, _ = Program("postgresql://127.0.0.1:1/gone").fails("alerts", "check")
    assert "Cannot connect" in what
    what, _ = Program("postgresql://127.0.0.1:1/gone").fails("alerts", "check", "--notify")
    assert "Cannot connect" in what


def test_alerts_reset_webhook_says_whether_the_webhook_was_disabled(
    mailgres: Program, queue: Queue
) -> None:
    assert mailgres("alerts", "reset-webhook") == "The webhook was not disabled.\n"
    for _ in range(10):
        queue.run("SELECT mailgres.record_webhook_result('digest', false)")
    assert mailgres("alerts", "reset-webhook", "--dry-run").splitlines() == [
        "The webhook is enabled again.",
        "Nothing was changed: this was a dry run.",
    ]
    assert mailgres("alerts", "reset-webhook") == "The webhook is enabled again.\n"


def test_analysts_may_list_alerts_and_not_change_rules(mailgres: Program) -> None:
    as_analyst = {"PGOPTIONS": "-c role=mailgres_analyst"}
    assert mailgres.run("alerts", "list", **as_analyst).stderr == "No alert is firing.\n"
    assert mailgres("alerts", "check", **as_analyst) == ""
    what, hint = mailgres.fails("alerts", "set", "parked", "--off", **as_analyst)
    assert "permission denied" in what
    assert "GRANT mailgres_operator" in hint
    as_operator = {"PGOPTIONS": "-c role=mailgres_operator"}
    assert "off" in mailgres("alerts", "set", "parked", "--off", **as_operator)
    assert "parked" in mailgres("alerts", "rules", **as_operator)


def test_alerts_without_a_schema_names_migrate(empty_database_url: str) -> None:
    _, hint = Program(empty_database_url).fails("alerts", "list")
    assert hint == "Run `mailgres migrate`."


def test_alerts_explain_prints_a_section_of_the_runbook(queue: Queue) -> None:
    """For every rule, without a database and without the repository's docs."""
    nowhere = Program("postgresql://127.0.0.1:1/nothing")
    for rule in queue.value("SELECT array_agg(name ORDER BY name) FROM mailgres.alert_rules"):
        said = nowhere("alerts", "explain", rule)
        assert said.startswith(f"{rule}\n\n")
        assert "](#" not in said
        assert "\n## " not in said
    what, hint = nowhere.fails("alerts", "explain", "circuit_opn")
    assert what == "There is no alert rule 'circuit_opn'"
    assert hint == "Did you mean circuit_open? `mailgres alerts rules` shows all."
