"""Alerts are told once when they fire, once when they are over, by every way, without storms."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import psycopg
import pytest

from janitor.harness import SECOND, JanitorHarness
from janitor.notifier import ADMIN, MINUTE, SECRET, Hook, Notifier, rendered
from mailgres.janitor import AlertTargets
from support.concurrency import at_once
from support.postgres import Connect

OPEN = "UPDATE mailgres.providers SET circuit = 'open', reopened = 1 WHERE name = 'capture'"
CLOSE = "UPDATE mailgres.providers SET circuit = 'closed', reopened = 0 WHERE name = 'capture'"
CHECK = "SELECT mailgres.check_alerts('admin@example.com')"
PARK = """
    INSERT INTO email_queue (template_type, recipient_email, tenant_id, next_retry_at, parked_since)
    SELECT 'welcome_user', 'ana@example.com', t, mailgres.now() + interval '1 day', mailgres.now()
    FROM unnest(%s::text[]) t
"""
WAIT = """
    INSERT INTO email_queue (template_type, recipient_email, next_retry_at, ready)
    SELECT 'welcome_user', 'ana@example.com', mailgres.now() + interval '1 hour', false
    FROM generate_series(1, 2000)
"""
UNPARK = "UPDATE email_queue SET parked_since = NULL"


def reported(hook: Hook) -> list[tuple[list[str], list[str]]]:
    """What fired and what was over, by message."""
    return [
        ([one["rule"] for one in news["firing"]], [one["rule"] for one in news["resolved"]])
        for news in hook.news
    ]


def state(harness: JanitorHarness, rule: str = "circuit_open") -> object:
    return harness.row("SELECT * FROM mailgres.alerts WHERE rule = %s", rule)


FIRES: tuple[list[str], list[str]] = (["circuit_open"], [])
OVER: tuple[list[str], list[str]] = ([], ["circuit_open"])


# --- once each


def test_by_log_webhook_and_mail(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    assert notifier.check() == 0
    notifier.harness.run(OPEN)
    start = notifier.harness.clock.now
    with caplog.at_level(logging.INFO, "mailgres.janitor.notify"):
        assert notifier.check() == 1
    assert reported(hook) == [FIRES]
    (alert,) = hook.news[0]["firing"]
    assert (alert["subject"], alert["figure"], alert["severity"]) == ("capture", 1, "critical")
    (record,) = [one for one in caplog.records if one.name == "mailgres.janitor.notify"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "critical: circuit_open (capture): 1 openings, threshold 0;"
        " see docs/runbook.md#circuit_open"
    )
    assert record.__dict__["event"] == "AlertFiring"
    assert (record.__dict__["rule"], record.__dict__["subject"]) == ("circuit_open", "capture")
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: critical: circuit_open (capture)"
    assert "1 openings, threshold 0; since" in text
    assert "What to do: docs/runbook.md#circuit_open" in text
    assert SECRET not in caplog.text + text
    (row,) = notifier.harness.rows("SELECT * FROM email_alerts")
    assert (row.rule, row.subject, row.since) == ("circuit_open", "capture", start)


def test_fires_once_and_resolves_once(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(OPEN)
    assert [notifier.check(after=MINUTE) for _ in range(30)] == [1] + [0] * 29
    notifier.harness.run(CLOSE)
    assert notifier.firing() == []
    assert [notifier.check(after=MINUTE) for _ in range(30)] == [0] * 4 + [1] + [0] * 25
    assert reported(hook) == [FIRES, OVER]
    assert len(notifier.mails()) == 2
    notifier.harness.clock.forward(timedelta(days=8))
    notifier.check()
    assert notifier.harness.rows("SELECT * FROM mailgres.alerts") == []


def test_the_mail_of_one_that_is_over(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    notifier.check()
    notifier.harness.run("DELETE FROM email_queue")
    notifier.harness.run(CLOSE)
    notifier.check(after=5 * MINUTE)
    subject, text = rendered(notifier.harness, notifier.mails()[-1].id)
    assert subject == "mailgres: resolved: circuit_open (capture)"
    assert "Resolved:\n\n- circuit_open (provider capture), since" in text


def test_alert_in_portuguese(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    notifier.check()
    subject, text = rendered(notifier.harness, notifier.mails()[0].id, "pt-BR")
    assert subject == "mailgres: crítico: circuit_open (capture)"
    assert "1 openings, limite 0; desde" in text


def test_since_stays_while_it_fires(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    start = notifier.harness.clock.now
    for _ in range(3):
        notifier.check()
        notifier.harness.clock.forward(MINUTE)
    (row,) = notifier.harness.rows("SELECT since, figure FROM email_alerts")
    assert row.since == start


def test_none_is_over_because_there_are_many(notifier: Notifier) -> None:
    """The view shows a thousand; the others fire as well."""
    notifier.harness.run(PARK, [f"t{number:04}" for number in range(1010)])
    notifier.check()
    notifier.check(after=6 * MINUTE)
    assert len(notifier.firing()) == 1000
    noted = notifier.harness.rows("SELECT subject FROM mailgres.alerts WHERE resolved_at IS NULL")
    assert len(noted) == 1010


def test_parked_behind_many_that_are_due_sooner(notifier: Notifier) -> None:
    notifier.harness.run(WAIT)
    notifier.harness.run(PARK, ["acme"])
    assert ("parked", "acme") in notifier.firing()


# --- no storm


def test_alert_one_that_flaps(notifier: Notifier, hook: Hook) -> None:
    """Up a minute and down a minute for an hour: it fires all the time, and is told once."""
    for number in range(60):
        notifier.harness.run(CLOSE if number % 2 else OPEN)
        notifier.check(after=MINUTE)
    assert reported(hook) == [FIRES]


def test_one_that_flaps_slowly(notifier: Notifier, hook: Hook) -> None:
    """Up for a minute and down for nine: it comes back sooner than people want to hear of it."""
    for number in range(120):
        notifier.harness.run(OPEN if number % 10 == 0 else CLOSE)
        notifier.check(after=MINUTE)
    fired = [one for one in reported(hook) if one == FIRES]
    over = [one for one in reported(hook) if one == OVER]
    assert len(fired) <= 120 // 15
    assert len(fired) - len(over) in (0, 1), "who hears of it hears that it is over"


def test_one_that_was_over_before_it_was_told(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(PARK, ["a"])
    notifier.check()
    notifier.harness.run(OPEN.replace("circuit", "enabled = false, circuit"))
    notifier.harness.run("UPDATE mailgres.alert_rules SET severity = 'info'")
    notifier.harness.run("UPDATE mailgres.providers SET enabled = true")
    notifier.check(after=SECOND)
    assert state(notifier.harness).notified == "nothing", "waits for its turn"  # type: ignore[attr-defined]
    notifier.harness.run(CLOSE)
    notifier.check(after=20 * MINUTE)
    assert reported(hook) == [(["parked"], [])]


def test_many_at_once_are_one_message(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(PARK, [f"t{number:03}" for number in range(50)])
    assert notifier.check() == 50
    (news,) = hook.news
    assert (len(news["firing"]), news["more"], news["new"]) == (20, 30, 50)
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: warning: parked (t000) and 49 more"
    assert "And 30 more." in text
    notifier.harness.run("DELETE FROM email_queue WHERE status = 'sending'")
    notifier.harness.run(UNPARK)
    assert notifier.check(after=6 * MINUTE) == 50
    assert len(hook.news) == 2


def test_the_next_message_waits_unless_it_is_critical(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(PARK, ["a"])
    notifier.check()
    notifier.harness.run(PARK, ["b"])
    notifier.check(after=4 * MINUTE)
    assert reported(hook) == [(["parked"], [])]
    notifier.harness.run(OPEN)
    notifier.check()
    assert reported(hook)[1:] == [(["circuit_open", "parked"], [])]


def test_rules_that_are_switched_off_are_forgotten(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(OPEN)
    notifier.check()
    notifier.harness.run("SELECT mailgres.set_alert_rule('circuit_open', p_enabled => false)")
    assert notifier.check(after=10 * MINUTE) == 0
    assert reported(hook) == [FIRES]
    assert notifier.harness.rows("SELECT * FROM mailgres.alerts") == []


# --- whom


def test_a_tenant_is_told_of_its_own(notifier: Notifier, hook: Hook) -> None:
    harness = notifier.harness
    harness.run("SELECT mailgres.set_tenant('acme', '{\"contact_email\": \"post@acme.example\"}')")
    harness.run("INSERT INTO mailgres.tenants (tenant_id, contact_email) VALUES ('bad', 'x')")
    harness.run(OPEN)
    harness.run(PARK, ["acme", "bad", "other"])
    notifier.check()
    (mail,) = notifier.mails("post@acme.example")
    assert [one["subject"] for one in mail.payload["firing"]] == ["acme"]
    assert mail.payload["resolved"] == []
    harness.run("UPDATE email_queue SET ready = false WHERE id <> %s", mail.id)
    harness.run(CLOSE)
    subject, text = rendered(harness, mail.id)
    assert subject == "mailgres: warning: parked (acme)"
    assert "docs/" not in text
    assert len(hook.news) == 1
    harness.run(UNPARK)
    notifier.check(after=6 * MINUTE)
    assert [len(one.payload["resolved"]) for one in notifier.mails("post@acme.example")] == [0, 1]


def test_without_settings_it_is_logged(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.alerts = AlertTargets()
    notifier.harness.run(OPEN)
    assert notifier.check() == 1
    assert "critical: circuit_open (capture)" in caplog.text
    assert (hook.news, notifier.mails()) == ([], [])


def test_alert_no_loops(notifier: Notifier, hook: Hook) -> None:
    """That mails about alerts die is not told by such a mail."""
    notifier.die(9, template_type="mailgres_alert")
    notifier.harness.clean("fold_rollups")
    notifier.check()
    assert reported(hook) == [(["template_failing"], [])]
    assert hook.news[0]["firing"][0]["subject"] == "mailgres_alert"
    assert notifier.mails() == []
    notifier.harness.run(OPEN)
    notifier.check()
    assert len(notifier.mails()) == 1, "of other things it is"


def test_a_mail_that_cannot_be_written(
    notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.harness.run("UPDATE email_templates SET retired_at = now()")
    notifier.harness.run(OPEN)
    assert notifier.check() == 1
    assert "the alert could not be enqueued" in caplog.text
    assert state(notifier.harness).notified == "firing"  # type: ignore[attr-defined]


# --- exactly once


def test_many_workers_at_once(notifier: Notifier, hook: Hook, connect: Connect) -> None:
    """Also those that do not take the janitor's lock."""
    notifier.harness.run(OPEN)
    connections = [connect() for _ in range(8)]
    at_once([lambda c=each: c.execute(CHECK) for each in connections])  # type: ignore[misc]
    assert notifier.harness.value("SELECT count(*) FROM mailgres.notifications") == 1
    assert len(notifier.mails(ADMIN)) == 1
    calls = [threading.Thread(target=notifier.call) for _ in range(4)]
    for each in calls:
        each.start()
    for each in calls:
        each.join()
    assert reported(hook) == [FIRES]


def test_a_crash_before_the_commit(notifier: Notifier, hook: Hook, connect: Connect) -> None:
    """Nobody was told, and nothing is kept that says so."""
    notifier.harness.run(OPEN)
    other = connect(autocommit=False)
    other.execute(CHECK)
    other.close()
    assert (notifier.mails(), notifier.harness.rows("SELECT * FROM mailgres.notifications")) == (
        [],
        [],
    )
    assert notifier.check() == 1
    assert (reported(hook), len(notifier.mails())) == ([FIRES], 1)


def test_a_crash_after_the_commit(notifier: Notifier, hook: Hook) -> None:
    """The mail is enqueued and the webhook is called by another worker; only a log line is lost."""
    notifier.harness.run(OPEN)
    notifier.harness.run(CHECK)
    assert notifier.check() == 0
    assert (reported(hook), len(notifier.mails())) == ([FIRES], 1)


# --- rules by hand


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("threshold = -1", "alert_rules_threshold_check"),
        ("threshold = 'NaN'", "alert_rules_percent"),
        ("threshold = 101", "alert_rules_percent"),
        ("time_window = '0'", "alert_rules_time_window_check"),
        ("time_window = '8 days'", "alert_rules_time_window_check"),
        ("severity = 'fatal'", "alert_rules_severity_check"),
        ("least = -1", "alert_rules_least_check"),
    ],
)
def test_what_an_update_may_not_do(harness: JanitorHarness, change: str, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        harness.run(f"UPDATE mailgres.alert_rules SET {change} WHERE name = 'failure_rate'")
    assert caught.value.diag.constraint_name == constraint


def test_an_unknown_rule_in_sql(harness: JanitorHarness) -> None:
    with pytest.raises(psycopg.Error) as caught:
        harness.run("SELECT mailgres.set_alert_rule('failur_rate', 5)")
    assert caught.value.sqlstate == "MG090"
    assert str(caught.value.diag.message_hint).startswith("Known rules: backlog, ")
    for nothing in (None, "", "x", "x" * 10_000):
        with pytest.raises(psycopg.Error) as caught:
            harness.run("SELECT mailgres.set_alert_rule(%s, 5)", nothing)
        assert caught.value.sqlstate == "MG090"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-1", "-1 is no threshold of failure_rate"),
        ("'NaN'", "NaN is no threshold of failure_rate"),
        ("100.5", "100.5 is no threshold of failure_rate"),
        ("p_time_window => '-1 hour'", "a window is longer than nothing and at most 7 days"),
        ("p_time_window => '8 days'", "a window is longer than nothing and at most 7 days"),
        ("p_severity => 'fatal'", "'fatal' is no severity"),
    ],
)
def test_bad_rules_in_sql(harness: JanitorHarness, arguments: str, said: str) -> None:
    before = harness.rows("SELECT * FROM mailgres.alert_rules")
    with pytest.raises(psycopg.Error) as caught:
        harness.run(f"SELECT mailgres.set_alert_rule('failure_rate', {arguments})")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("MG091", said)
    assert caught.value.diag.message_hint
    assert harness.rows("SELECT * FROM mailgres.alert_rules") == before
