"""People are notified once when an alert fires and once when it resolves, without floods."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import psycopg
import pytest

from janitor.harness import SECOND, JanitorHarness
from janitor.notifier import (
    ADMIN,
    MINUTE,
    SECRET,
    WITHOUT_WEBHOOK,
    Hook,
    Notifier,
    rendered,
)
from mailgres.janitor import AlertTargets
from support.concurrency import at_once
from support.postgres import Connect

OPEN = "UPDATE mailgres.providers SET circuit = 'open', reopened = 1 WHERE name = 'capture'"
CLOSE = "UPDATE mailgres.providers SET circuit = 'closed', reopened = 0 WHERE name = 'capture'"
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
    """Return the rules that fired and that resolved, by message."""
    return [
        ([one["rule"] for one in got["firing"]], [one["rule"] for one in got["resolved"]])
        for got in hook.got
        if got["event"] == "Alerts"
    ]


def state(harness: JanitorHarness, rule: str = "circuit_open") -> object:
    return harness.row("SELECT * FROM mailgres.alerts WHERE rule = %s", rule)


FIRES: tuple[list[str], list[str]] = (["circuit_open"], [])
RESOLVED: tuple[list[str], list[str]] = ([], ["circuit_open"])


# --- once each


def test_an_alert_is_notified_by_log_webhook_and_email(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    assert notifier.alerts_notified() == 0
    notifier.harness.run(OPEN)
    start = notifier.harness.clock.now
    with caplog.at_level(logging.INFO, "mailgres.janitor.notify"):
        assert notifier.alerts_notified() == 1
    assert reported(hook) == [FIRES]
    (alert,) = hook.got[0]["firing"]
    assert (alert["subject"], alert["figure"], alert["severity"]) == ("capture", 1, "critical")
    (record,) = [one for one in caplog.records if one.name == "mailgres.janitor.notify"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "critical: circuit_open (capture): 1 openings, threshold 0;"
        " see mailgres alerts explain circuit_open"
    )
    assert record.__dict__["event"] == "AlertFiring"
    assert (record.__dict__["rule"], record.__dict__["subject"]) == ("circuit_open", "capture")
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: critical: circuit_open (capture)"
    assert "1 openings, threshold 0; since" in text
    assert "What to do: mailgres alerts explain circuit_open" in text
    assert SECRET not in caplog.text + text
    (row,) = notifier.harness.rows("SELECT * FROM email_alerts")
    assert (row.rule, row.subject, row.since) == ("circuit_open", "capture", start)


def test_an_alert_is_notified_once_when_it_fires_and_once_when_it_resolves(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.harness.run(OPEN)
    assert [notifier.alerts_notified(after=MINUTE) for _ in range(30)] == [1] + [0] * 29
    notifier.harness.run(CLOSE)
    assert notifier.firing() == []
    assert [notifier.alerts_notified(after=MINUTE) for _ in range(30)] == [0] * 4 + [1] + [0] * 25
    assert reported(hook) == [FIRES, RESOLVED]
    assert len(notifier.mails()) == 2
    notifier.harness.clock.forward(timedelta(days=8))
    notifier.alerts_notified()
    assert notifier.harness.rows("SELECT * FROM mailgres.alerts") == []


def test_the_email_of_a_resolved_alert_names_it(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    notifier.alerts_notified()
    notifier.harness.run("DELETE FROM email_queue")
    notifier.harness.run(CLOSE)
    notifier.alerts_notified(after=5 * MINUTE)
    subject, text = rendered(notifier.harness, notifier.mails()[-1].id)
    assert subject == "mailgres: resolved: circuit_open (capture)"
    assert "Resolved:\n\n- circuit_open (provider capture), since" in text


def test_an_alert_email_can_be_in_portuguese(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    notifier.alerts_notified()
    subject, text = rendered(notifier.harness, notifier.mails()[0].id, "pt-BR")
    assert subject == "mailgres: crítico: circuit_open (capture)"
    assert "1 openings, limite 0; desde" in text


def test_since_stays_the_same_while_an_alert_fires(notifier: Notifier) -> None:
    notifier.harness.run(OPEN)
    start = notifier.harness.clock.now
    for _ in range(3):
        notifier.alerts_notified()
        notifier.harness.clock.forward(MINUTE)
    (row,) = notifier.harness.rows("SELECT since, figure FROM email_alerts")
    assert row.since == start


def test_no_alert_resolves_because_there_are_more_than_the_view_shows(notifier: Notifier) -> None:
    """The view shows a thousand."""
    notifier.harness.run(PARK, [f"t{number:04}" for number in range(1010)])
    notifier.alerts_notified()
    notifier.alerts_notified(after=6 * MINUTE)
    assert len(notifier.firing()) == 1000
    noted = notifier.harness.rows("SELECT subject FROM mailgres.alerts WHERE resolved_at IS NULL")
    assert len(noted) == 1010


def test_a_parked_email_is_found_behind_many_that_are_due_sooner(notifier: Notifier) -> None:
    notifier.harness.run(WAIT)
    notifier.harness.run(PARK, ["acme"])
    assert ("parked", "acme") in notifier.firing()


# --- no flood


def test_an_alert_that_comes_and_goes_every_minute_is_notified_once(
    notifier: Notifier, hook: Hook
) -> None:
    """For an hour: an alert resolves only after five minutes."""
    for number in range(60):
        notifier.harness.run(CLOSE if number % 2 else OPEN)
        notifier.alerts_notified(after=MINUTE)
    assert reported(hook) == [FIRES]


def test_an_alert_that_comes_and_goes_slowly_is_notified_every_15_minutes_at_most(
    notifier: Notifier, hook: Hook
) -> None:
    """It fires for a minute and is silent for nine."""
    for number in range(120):
        notifier.harness.run(OPEN if number % 10 == 0 else CLOSE)
        notifier.alerts_notified(after=MINUTE)
    fired = [one for one in reported(hook) if one == FIRES]
    over = [one for one in reported(hook) if one == RESOLVED]
    assert len(fired) <= 120 // 15
    assert len(fired) - len(over) in (0, 1), "each notice has its end"


def test_an_alert_that_resolved_before_its_notification_is_left_out(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.harness.run(PARK, ["a"])
    notifier.alerts_notified()
    notifier.harness.run(OPEN.replace("circuit", "enabled = false, circuit"))
    notifier.harness.run("UPDATE mailgres.alert_rules SET severity = 'info'")
    notifier.harness.run("UPDATE mailgres.providers SET enabled = true")
    notifier.alerts_notified(after=SECOND)
    assert state(notifier.harness).notified == "nothing", "the next message is not due yet"  # type: ignore[attr-defined]
    notifier.harness.run(CLOSE)
    notifier.alerts_notified(after=20 * MINUTE)
    assert reported(hook) == [(["parked"], [])]


def test_many_alerts_at_once_are_one_message(notifier: Notifier, hook: Hook) -> None:
    notifier.harness.run(PARK, [f"t{number:03}" for number in range(50)])
    assert notifier.alerts_notified() == 50
    (got,) = hook.got
    assert (len(got["firing"]), got["more"], got["new"]) == (20, 30, 50)
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: warning: parked (t000) and 49 more"
    assert "And 30 more." in text
    notifier.harness.run("DELETE FROM email_queue WHERE status = 'sending'")
    notifier.harness.run(UNPARK)
    assert notifier.alerts_notified(after=6 * MINUTE) == 50
    assert len(hook.got) == 2


def test_the_next_message_waits_five_minutes_unless_an_alert_is_critical(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.harness.run(PARK, ["a"])
    notifier.alerts_notified()
    notifier.harness.run(PARK, ["b"])
    notifier.alerts_notified(after=4 * MINUTE)
    assert reported(hook) == [(["parked"], [])]
    notifier.harness.run(OPEN)
    notifier.alerts_notified()
    assert reported(hook)[1:] == [(["circuit_open", "parked"], [])]


def test_alerts_of_a_disabled_rule_are_deleted_without_notification(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.harness.run(OPEN)
    notifier.alerts_notified()
    notifier.harness.run("SELECT mailgres.set_alert_rule('circuit_open', p_enabled => false)")
    assert notifier.alerts_notified(after=10 * MINUTE) == 0
    assert reported(hook) == [FIRES]
    assert notifier.harness.rows("SELECT * FROM mailgres.alerts") == []


# --- recipients


def test_the_contact_of_a_tenant_is_notified_of_alerts_about_it(
    notifier: Notifier, hook: Hook
) -> None:
    harness = notifier.harness
    harness.run("SELECT mailgres.set_tenant('acme', '{\"contact_email\": \"post@acme.example\"}')")
    harness.run("INSERT INTO mailgres.tenants (tenant_id, contact_email) VALUES ('bad', 'x')")
    harness.run(OPEN)
    harness.run(PARK, ["acme", "bad", "other"])
    notifier.alerts_notified()
    (mail,) = notifier.mails("post@acme.example")
    assert [one["subject"] for one in mail.payload["firing"]] == ["acme"]
    assert mail.payload["resolved"] == []
    harness.run("UPDATE email_queue SET ready = false WHERE id <> %s", mail.id)
    harness.run(CLOSE)
    subject, text = rendered(harness, mail.id)
    assert subject == "mailgres: warning: parked (acme)"
    assert "docs/" not in text
    assert len(hook.got) == 1
    harness.run(UNPARK)
    notifier.alerts_notified(after=6 * MINUTE)
    assert [len(one.payload["resolved"]) for one in notifier.mails("post@acme.example")] == [0, 1]


def test_without_alert_settings_an_alert_is_only_logged(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.alerts = AlertTargets()
    notifier.harness.run(OPEN)
    assert notifier.alerts_notified() == 1
    assert "critical: circuit_open (capture)" in caplog.text
    assert (hook.got, notifier.mails()) == ([], [])


def test_alerts_about_alert_emails_are_not_sent_by_email(notifier: Notifier, hook: Hook) -> None:
    notifier.die(9, template_type="mailgres_alert")
    notifier.harness.clean("fold_rollups")
    notifier.alerts_notified()
    assert reported(hook) == [(["template_failing"], [])]
    assert hook.got[0]["firing"][0]["subject"] == "mailgres_alert"
    assert notifier.mails() == []
    notifier.harness.run(OPEN)
    notifier.alerts_notified()
    assert len(notifier.mails()) == 1, "alerts about other things are sent by email"


def test_an_alert_email_that_cannot_be_enqueued_is_logged(
    notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.harness.run("UPDATE email_templates SET retired_at = now()")
    notifier.harness.run(OPEN)
    assert notifier.alerts_notified() == 1
    assert "the alert could not be enqueued" in caplog.text
    assert state(notifier.harness).notified == "firing"  # type: ignore[attr-defined]


# --- exactly once


def test_notifiers_that_run_at_once_notify_once(
    notifier: Notifier, hook: Hook, connect: Connect
) -> None:
    """Even without the lock of the janitor."""
    notifier.harness.run(OPEN)
    connections = [connect() for _ in range(8)]
    at_once([lambda c=each: c.execute(WITHOUT_WEBHOOK) for each in connections])  # type: ignore[misc]
    assert notifier.harness.value("SELECT count(*) FROM mailgres.notifications") == 1
    assert len(notifier.mails(ADMIN)) == 1
    calls = [threading.Thread(target=notifier.run) for _ in range(4)]
    for each in calls:
        each.start()
    for each in calls:
        each.join()
    assert reported(hook) == [FIRES]


def test_a_crash_before_the_commit_notifies_nobody_and_records_nothing(
    notifier: Notifier, hook: Hook, connect: Connect
) -> None:
    notifier.harness.run(OPEN)
    other = connect(autocommit=False)
    other.execute(WITHOUT_WEBHOOK)
    other.close()
    assert (notifier.mails(), notifier.harness.rows("SELECT * FROM mailgres.notifications")) == (
        [],
        [],
    )
    assert notifier.alerts_notified() == 1
    assert (reported(hook), len(notifier.mails())) == ([FIRES], 1)


def test_after_a_crash_behind_the_commit_another_worker_calls_the_webhook(
    notifier: Notifier, hook: Hook
) -> None:
    """The email is enqueued; only the log line is lost."""
    notifier.harness.run(OPEN)
    notifier.harness.run(WITHOUT_WEBHOOK)
    assert notifier.alerts_notified() == 0
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
def test_the_table_of_alert_rules_refuses_bad_values(
    harness: JanitorHarness, change: str, constraint: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        harness.run(f"UPDATE mailgres.alert_rules SET {change} WHERE name = 'failure_rate'")
    assert caught.value.diag.constraint_name == constraint


def test_set_alert_rule_refuses_an_unknown_rule_and_names_the_known_ones(
    harness: JanitorHarness,
) -> None:
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
        ("-1", "-1 is not a threshold of failure_rate"),
        ("'NaN'", "NaN is not a threshold of failure_rate"),
        ("100.5", "100.5 is not a threshold of failure_rate"),
        ("p_time_window => '-1 hour'", "the window must be more than 0 and at most 7 days"),
        ("p_time_window => '8 days'", "the window must be more than 0 and at most 7 days"),
        ("p_severity => 'fatal'", "'fatal' is not a severity"),
    ],
)
def test_set_alert_rule_refuses_bad_values_and_changes_nothing(
    harness: JanitorHarness, arguments: str, said: str
) -> None:
    before = harness.rows("SELECT * FROM mailgres.alert_rules")
    with pytest.raises(psycopg.Error) as caught:
        harness.run(f"SELECT mailgres.set_alert_rule('failure_rate', {arguments})")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("MG091", said)
    assert caught.value.diag.message_hint
    assert harness.rows("SELECT * FROM mailgres.alert_rules") == before
