"""People are told of dead letters: once, without loops, and whatever the webhook does."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import LiteralString

import pytest

from janitor.desk import ADMIN, MINUTE, SECRET, Desk, Hook, rendered
from janitor.house import SECOND, put
from mailgres.janitor import Alerts
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


def test_by_log_webhook_and_mail(desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    desk.die(3, error_code="no_mailbox")
    with caplog.at_level(logging.INFO):
        assert desk.tell() == 3
    (news,) = hook.news
    assert (news["event"], news["new"]) == ("DeadLetters", 3)
    assert news["reasons"] == [
        {"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}
    ]
    assert "3 new dead letters (operators)" in caplog.text
    (mail,) = desk.mails()
    subject, text = rendered(desk.house, mail.id)
    assert subject == "mailgres: 3 new dead letters"
    assert "- 3 of the template welcome_user: permanent (no_mailbox)\n" in text
    assert "email_dead_letters" in text
    everything = caplog.text + str([one.__dict__ for one in caplog.records]) + text + str(news)
    assert "ana@example.com" not in everything
    assert SECRET not in everything


def test_nothing_new_is_not_told(desk: Desk, hook: Hook) -> None:
    assert desk.tell() == 0
    desk.die()
    desk.tell()
    assert desk.tell(after=MINUTE * 60) == 0
    assert (len(hook.news), len(desk.mails())) == (1, 1)


def test_at_most_one_message_in_15_minutes(desk: Desk, hook: Hook) -> None:
    desk.die()
    desk.tell()
    for _ in range(5):
        desk.die(2)
        desk.tell()
    assert len(hook.news) == 1
    desk.tell(after=15 * MINUTE)
    assert [one["new"] for one in hook.news] == [1, 10]
    assert hook.news[1]["reasons"][0]["emails"] == 10
    assert len(desk.mails()) == 2


def test_who_is_still_dying_is_told_of_later(desk: Desk) -> None:
    put(desk.house, "failed")
    assert desk.tell() == 0
    assert desk.tell(after=10 * SECOND) == 1


@pytest.mark.parametrize("first", ["SELECT pg_current_xact_id()", "SELECT 1"])
def test_who_dies_in_a_long_transaction(
    desk: Desk, hook: Hook, connect: Connect, first: LiteralString
) -> None:
    """Dead since the start of a transaction that ends after others were told of."""
    (late,) = put(desk.house, "pending")
    with connect() as application, application.transaction():
        application.execute(first)
        desk.house.clock.forward(MINUTE)  # it has begun before, by any clock
        started = desk.house.clock.now
        desk.die()
        desk.tell(after=20 * SECOND)
        application.execute(GIVE_UP, (started, late))
    desk.tell(after=20 * MINUTE)
    assert sum(one["new"] for one in hook.news) == 2
    assert sum(reason["emails"] for one in hook.news for reason in one["reasons"]) == 2


@pytest.mark.parametrize(
    ("first", "longest"),
    [("SELECT pg_current_xact_id()", 60 * MINUTE), ("SELECT 1", MINUTE)],
)
def test_nobody_waits_for_ever_for_a_transaction(
    desk: Desk, connect: Connect, first: LiteralString, longest: timedelta
) -> None:
    with connect() as application, application.transaction():
        application.execute(first)
        desk.house.clock.forward(MINUTE)  # it has begun before, by any clock
        desk.die()
        assert desk.tell(after=longest - 30 * SECOND) == 0
        assert desk.tell(after=30 * SECOND) == 1


def test_no_loops(desk: Desk, hook: Hook) -> None:
    """That a message about dead letters died is nothing to write about."""
    desk.die()
    desk.tell()
    for _ in range(3):
        desk.house.run(DEAD_ALERT)
        assert desk.tell(after=20 * MINUTE) == 0
    assert (len(hook.news), len(desk.mails())) == (1, 1)


def test_in_chunks(desk: Desk, hook: Hook) -> None:
    for _ in range(5):
        desk.die(2)
    assert desk.tell(chunk=2) == 10
    assert [one["new"] for one in hook.news] == [10]


def test_a_tenant_is_told_of_its_own(desk: Desk, hook: Hook) -> None:
    house = desk.house
    for tenant in ("acme", "other"):
        contact = json.dumps({"contact_email": f"post@{tenant}.example"})
        house.run("SELECT mailgres.set_tenant(%s, %s)", tenant, contact)
    desk.die(2, tenant_id="acme", error_code="no_mailbox")
    desk.die(3, tenant_id="silent", error_code="other")
    desk.tell()
    (mail,) = desk.mails("post@acme.example")
    assert mail.payload["new"] == 2
    assert [one["code"] for one in mail.payload["reasons"]] == ["no_mailbox"]
    assert desk.mails("post@other.example") == []
    assert [one["new"] for one in hook.news] == [5]
    _, text = rendered(house, mail.id)
    assert "2 emails of acme were given up" in text
    assert "email_dead_letters" not in text
    desk.tell(after=20 * MINUTE)
    assert len(desk.mails("post@acme.example")) == 1


def test_an_address_that_cannot_be_written_to(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.house.run("UPDATE email_templates SET retired_at = now()")
    desk.house.run(
        "INSERT INTO mailgres.tenants (tenant_id, contact_email) VALUES ('default', 'x')"
    )
    desk.die()
    assert desk.tell() == 1
    assert "the alert could not be enqueued" in caplog.text


def test_without_settings_it_is_logged(
    desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    desk.alerts = Alerts()
    desk.die()
    desk.tell()
    assert "1 new dead letters (operators)" in caplog.text
    assert (hook.news, desk.mails()) == ([], [])


def test_by_hand(desk: Desk, hook: Hook) -> None:
    """With the settings that a worker has."""
    desk.die(2)
    program = Program(desk.house.url, {"MAILGRES_ALERT_EMAIL": ADMIN})
    done = program.run("janitor", "tell")
    assert json.loads(done.stdout)["handled"] == 2
    assert json.loads(done.stderr)["message"] == "2 new dead letters (operators)"
    assert (hook.news, len(desk.mails())) == ([], 1)
    done = program.run("janitor", "webhook", MAILGRES_ALERT_WEBHOOK=hook.url)
    assert (json.loads(done.stdout)["handled"], done.stderr) == (1, "")
    assert [one["new"] for one in hook.news] == [2]
