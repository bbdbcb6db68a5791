"""People are told of dead letters: once, without loops, and whatever the webhook does."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import LiteralString

import pytest

from janitor.harness import SECOND, put
from janitor.notifier import ADMIN, MINUTE, SECRET, Hook, Notifier, rendered
from mailgres.janitor import AlertTargets
from support.postgres import Connect
from support.program import Program

DEAD_ALERT = """
    UPDATE email_queue SET status = 'failed', ready = false, dead_at = mailgres.now(),
        dead_reason = 'permanent', error_message = 'no'
    WHERE template_type = 'mailgres_alert' AND status = 'pending'
"""

GIVE_UP = """
    UPDATE email_queue SET status = 'failed', ready = false, dead_at = %s,
        dead_reason = 'permanent', error_message = 'no'
    WHERE id = %s
"""


def test_by_log_webhook_and_mail(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.die(3, error_code="no_mailbox")
    with caplog.at_level(logging.INFO):
        assert notifier.tell() == 3
    (news,) = hook.news
    assert (news["event"], news["new"]) == ("DeadLetters", 3)
    assert news["reasons"] == [
        {"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}
    ]
    assert "3 new dead letters (operators)" in caplog.text
    (mail,) = notifier.mails()
    subject, text = rendered(notifier.harness, mail.id)
    assert subject == "mailgres: 3 new dead letters"
    assert "- 3 of the template welcome_user: permanent (no_mailbox)\n" in text
    assert "email_dead_letters" in text
    everything = caplog.text + str([one.__dict__ for one in caplog.records]) + text + str(news)
    assert "ana@example.com" not in everything
    assert SECRET not in everything


def test_nothing_new_is_not_told(notifier: Notifier, hook: Hook) -> None:
    assert notifier.tell() == 0
    notifier.die()
    notifier.tell()
    assert notifier.tell(after=MINUTE * 60) == 0
    assert (len(hook.news), len(notifier.mails())) == (1, 1)


def test_at_most_one_message_in_15_minutes(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.tell()
    for _ in range(5):
        notifier.die(2)
        notifier.tell()
    assert len(hook.news) == 1
    notifier.tell(after=15 * MINUTE)
    assert [one["new"] for one in hook.news] == [1, 10]
    assert hook.news[1]["reasons"][0]["emails"] == 10
    assert len(notifier.mails()) == 2


def test_who_is_still_dying_is_told_of_later(notifier: Notifier) -> None:
    put(notifier.harness, "failed")
    assert notifier.tell() == 0
    assert notifier.tell(after=10 * SECOND) == 1


@pytest.mark.parametrize("first", ["SELECT pg_current_xact_id()", "SELECT 1"])
def test_who_dies_in_a_long_transaction(
    notifier: Notifier, hook: Hook, connect: Connect, first: LiteralString
) -> None:
    """Dead since the start of a transaction that ends after others were told of."""
    (late,) = put(notifier.harness, "pending")
    with connect() as application, application.transaction():
        application.execute(first)
        notifier.harness.clock.forward(MINUTE)  # it has begun before, by any clock
        started = notifier.harness.clock.now
        notifier.die()
        notifier.tell(after=20 * SECOND)
        application.execute(GIVE_UP, (started, late))
    notifier.tell(after=20 * MINUTE)
    assert sum(one["new"] for one in hook.news) == 2
    assert sum(reason["emails"] for one in hook.news for reason in one["reasons"]) == 2


@pytest.mark.parametrize(
    ("first", "longest"),
    [("SELECT pg_current_xact_id()", 60 * MINUTE), ("SELECT 1", MINUTE)],
)
def test_nobody_waits_for_ever_for_a_transaction(
    notifier: Notifier, connect: Connect, first: LiteralString, longest: timedelta
) -> None:
    with connect() as application, application.transaction():
        application.execute(first)
        notifier.harness.clock.forward(MINUTE)  # it has begun before, by any clock
        notifier.die()
        assert notifier.tell(after=longest - 30 * SECOND) == 0
        assert notifier.tell(after=30 * SECOND) == 1


def test_dead_letter_notice_no_loops(notifier: Notifier, hook: Hook) -> None:
    """That a message about dead letters died is nothing to write about."""
    notifier.die()
    notifier.tell()
    for _ in range(3):
        notifier.harness.run(DEAD_ALERT)
        assert notifier.tell(after=20 * MINUTE) == 0
    assert (len(hook.news), len(notifier.mails())) == (1, 1)


def test_dead_letter_notice_in_chunks(notifier: Notifier, hook: Hook) -> None:
    for _ in range(5):
        notifier.die(2)
    assert notifier.tell(chunk=2) == 10
    assert [one["new"] for one in hook.news] == [10]


def test_a_tenant_is_told_of_its_own(notifier: Notifier, hook: Hook) -> None:
    harness = notifier.harness
    for tenant in ("acme", "other"):
        contact = json.dumps({"contact_email": f"post@{tenant}.example"})
        harness.run("SELECT mailgres.set_tenant(%s, %s)", tenant, contact)
    notifier.die(2, tenant_id="acme", error_code="no_mailbox")
    notifier.die(3, tenant_id="silent", error_code="other")
    notifier.tell()
    (mail,) = notifier.mails("post@acme.example")
    assert mail.payload["new"] == 2
    assert [one["code"] for one in mail.payload["reasons"]] == ["no_mailbox"]
    assert notifier.mails("post@other.example") == []
    assert [one["new"] for one in hook.news] == [5]
    _, text = rendered(harness, mail.id)
    assert "2 emails of acme became dead letters" in text
    assert "email_dead_letters" not in text
    notifier.tell(after=20 * MINUTE)
    assert len(notifier.mails("post@acme.example")) == 1


def test_an_address_that_cannot_be_written_to(
    notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.harness.run("UPDATE email_templates SET retired_at = now()")
    notifier.harness.run(
        "INSERT INTO mailgres.tenants (tenant_id, contact_email) VALUES ('default', 'x')"
    )
    notifier.die()
    assert notifier.tell() == 1
    assert "the alert could not be enqueued" in caplog.text


def test_without_settings_it_is_logged(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.alerts = AlertTargets()
    notifier.die()
    notifier.tell()
    assert "1 new dead letters (operators)" in caplog.text
    assert (hook.news, notifier.mails()) == ([], [])


def test_dead_letter_notice_by_hand(notifier: Notifier, hook: Hook) -> None:
    """With the settings that a worker has."""
    notifier.die(2)
    program = Program(notifier.harness.url, {"MAILGRES_ALERT_EMAIL": ADMIN})
    done = program.run("janitor", "notify_dead_letters")
    assert json.loads(done.stdout)["handled"] == 2
    assert json.loads(done.stderr)["message"] == "2 new dead letters (operators)"
    assert (hook.news, len(notifier.mails())) == ([], 1)
    done = program.run("janitor", "deliver_notifications", MAILGRES_ALERT_WEBHOOK=hook.url)
    assert (json.loads(done.stdout)["handled"], done.stderr) == (1, "")
    assert [one["new"] for one in hook.news] == [2]
