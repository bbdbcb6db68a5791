"""People are notified of dead letters: once, without loops, whatever the webhook does."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from janitor.harness import put
from janitor.notifier import ADMIN, MINUTE, SECRET, Hook, Notifier, rendered
from mailgres.janitor import AlertTargets
from support.postgres import Connect
from support.program import Program

DEAD_ALERT = """
    UPDATE email_queue SET status = 'failed', error_message = 'no'
    WHERE template_type = 'mailgres_alert' AND status = 'pending'
"""


@pytest.fixture(autouse=True)
def no_alerts(notifier: Notifier) -> None:
    """These tests are about dead letters only."""
    notifier.harness.run("UPDATE mailgres.alert_rules SET enabled = false")


def test_dead_letters_are_notified_by_log_webhook_and_email(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.die(3, code="no_mailbox")
    with caplog.at_level(logging.INFO):
        assert notifier.dead_letters_notified() == 3
    (got,) = hook.got
    assert (got["event"], got["new"]) == ("DeadLetters", 3)
    assert got["reasons"] == [
        {"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}
    ]
    assert "3 new dead letters (operators)" in caplog.text
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: 3 new dead letters"
    assert "- 3 of the template welcome_user: permanent (no_mailbox)\n" in text
    assert "email_dead_letters" in text
    everything = caplog.text + str([one.__dict__ for one in caplog.records]) + text + str(got)
    assert "ana@example.com" not in everything
    assert SECRET not in everything


def test_without_new_dead_letters_nobody_is_notified(notifier: Notifier, hook: Hook) -> None:
    assert notifier.dead_letters_notified() == 0
    notifier.die()
    notifier.run()
    assert notifier.dead_letters_notified(after=MINUTE * 60) == 0
    assert (len(hook.got), len(notifier.mails())) == (1, 1)


def test_people_get_at_most_one_message_in_15_minutes(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.run()
    for _ in range(5):
        notifier.die(2)
        notifier.run(after=MINUTE)
    assert len(hook.got) == 1
    notifier.run(after=10 * MINUTE)
    assert [one["new"] for one in hook.got] == [1, 10]
    assert hook.got[1]["reasons"][0]["emails"] == 10
    assert len(notifier.mails()) == 2


def test_the_ten_most_frequent_reasons_are_named(notifier: Notifier, hook: Hook) -> None:
    for number in range(12):
        notifier.die(number + 1, code=f"code_{number:02}")
    assert notifier.dead_letters_notified() == sum(range(13))
    (got,) = hook.got
    assert [one["code"] for one in got["reasons"]] == [f"code_{n:02}" for n in range(11, 1, -1)]


def test_dead_letters_of_an_open_transaction_are_notified_after_its_commit(
    notifier: Notifier, hook: Hook, connect: Connect
) -> None:
    """Others do not wait for it, and none is lost, however long it takes."""
    (late,) = put(notifier.harness, "pending")
    with connect() as application, application.transaction():
        application.execute(
            "UPDATE email_queue SET status = 'failed', error_message = 'no' WHERE id = %s", (late,)
        )
        notifier.die()
        assert notifier.dead_letters_notified(after=timedelta(hours=2)) == 1
    assert notifier.dead_letters_notified(after=20 * MINUTE) == 1
    assert [reason["emails"] for one in hook.got for reason in one["reasons"]] == [1, 1]


def test_imported_dead_letters_are_history_and_notify_nobody(
    notifier: Notifier, hook: Hook
) -> None:
    put(notifier.harness, "failed", 3)
    assert notifier.run() == []
    assert (hook.got, notifier.mails()) == ([], [])


def test_a_dead_notification_causes_no_notification(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.run()
    for _ in range(3):
        notifier.harness.run(DEAD_ALERT)
        assert notifier.dead_letters_notified(after=20 * MINUTE) == 0
    assert (len(hook.got), len(notifier.mails())) == (1, 1)


def test_the_contact_of_a_tenant_is_notified_of_its_own_dead_letters(
    notifier: Notifier, hook: Hook
) -> None:
    harness = notifier.harness
    for tenant in ("acme", "other"):
        contact = json.dumps({"contact_email": f"post@{tenant}.example"})
        harness.run("SELECT mailgres.set_tenant(%s, %s)", tenant, contact)
    notifier.die(2, tenant_id="acme", code="no_mailbox")
    notifier.die(3, tenant_id="silent", code="other")
    notifier.run()
    (mail,) = notifier.mails("post@acme.example")
    assert mail.payload["new"] == 2
    assert [one["code"] for one in mail.payload["reasons"]] == ["no_mailbox"]
    assert notifier.mails("post@other.example") == []
    assert [one["new"] for one in hook.got] == [5]
    _, text = rendered(harness, mail.id)
    assert "2 emails of acme became dead letters" in text
    assert "email_dead_letters" not in text
    notifier.run(after=20 * MINUTE)
    assert len(notifier.mails("post@acme.example")) == 1


def test_a_notification_that_cannot_be_enqueued_is_logged(
    notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.harness.run("UPDATE email_templates SET retired_at = now()")
    notifier.harness.run(
        "INSERT INTO mailgres.tenants (tenant_id, contact_email) VALUES ('default', 'x')"
    )
    notifier.die()
    assert notifier.dead_letters_notified() == 1
    assert "the alert could not be enqueued" in caplog.text


def test_without_alert_settings_dead_letters_are_only_logged(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.alerts = AlertTargets()
    notifier.die()
    notifier.run()
    assert "1 new dead letters (operators)" in caplog.text
    assert (hook.got, notifier.mails()) == ([], [])


def test_the_notifier_run_by_hand_uses_the_alert_settings(notifier: Notifier, hook: Hook) -> None:
    notifier.die(2)
    program = Program(notifier.harness.url, {"MAILGRES_ALERT_EMAIL": ADMIN})
    done = program.run("janitor", "notify")
    assert json.loads(done.stdout)["handled"] == 3
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [one["event"] for one in events] == ["JobFailed", "JobFailed", "DeadLetters"]
    assert events[-1]["message"] == "2 new dead letters (operators)"
    assert (hook.got, len(notifier.mails())) == ([], 1)
    done = program.run("janitor", "notify", MAILGRES_ALERT_WEBHOOK=hook.url)
    assert (json.loads(done.stdout)["handled"], done.stderr) == (1, "")
    assert [one["new"] for one in hook.got] == [2]


def test_process_without_alert_settings_leaves_notifications_to_the_notifier(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.die()
    done = Program(notifier.harness.url, {"MAILGRES_PROVIDERS": "capture"}).run("process")
    assert '"event": "JobFailed"' in done.stderr
    assert notifier.dead_letters_notified() == 1
    assert ([one["new"] for one in hook.got], len(notifier.mails())) == ([1], 1)


def test_a_notifier_without_a_log_leaves_dead_letters_to_be_logged(notifier: Notifier) -> None:
    """As a job of pg_cron does: it notifies, and a worker logs later."""
    notifier.die()
    notifier.harness.run("SELECT mailgres.notify(NULL)")
    assert [one["event"] for one in notifier.run()] == ["JobFailed"]
