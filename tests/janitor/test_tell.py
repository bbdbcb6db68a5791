"""People are told of dead letters: once, without loops, and whatever the webhook does."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from doubles.http_server import Reply, serving
from janitor.house import ME, SECOND, House, put
from mailgres.janitor import JANITORS, Alerts, run
from mailgres.model import Email
from mailgres.sender import Renderer
from mailgres.store import Store
from support.program import Program

MINUTE = timedelta(minutes=1)
ADMIN = "admin@example.com"
SECRET = "s3cr3t"
DEAD_ALERT = """
    UPDATE email_queue SET status = 'failed', ready = false, dead_at = mailgres.now(),
        dead_reason = 'permanent', error_message = 'no'
    WHERE template_type = 'mailgres_alert' AND status = 'pending'
"""


@dataclass
class Hook:
    """A webhook, its answers, and what it was told."""

    status: int = 200
    reset: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    news: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def __call__(self, method: str, path: str, _headers: dict[str, str], body: bytes) -> Reply:
        assert (method, path) == ("POST", f"/{SECRET}")
        self.news.append(json.loads(body))
        return Reply(self.status, b"ok", headers=self.headers, reset=self.reset)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    with serving(made) as url:
        made.url = f"{url}/{SECRET}"
        yield made


class Desk:
    """Where the janitor `tell` works."""

    def __init__(self, house: House, hook: Hook) -> None:
        self.house = house
        self.alerts = Alerts(ADMIN, hook.url)

    def die(self, count: int = 1, **changes: str) -> None:
        """Let emails die, and so much time pass that this is seen."""
        found = put(self.house, "failed", count)
        for column, value in changes.items():
            update = f"UPDATE email_queue SET {column} = %s WHERE id = ANY(%s)"
            self.house.run(update, value, found)
        self.house.clock.forward(20 * SECOND)

    def tell(self, *, after: timedelta = timedelta(0), chunk: int = 10_000) -> int:
        """Run the janitor; how many were new."""
        self.house.clock.forward(after)
        janitor = replace(JANITORS["tell"], chunk=chunk)
        connect = self.house.pool.connection
        return run(janitor, connect, replace(ME, alerts=self.alerts)).handled

    def mails(self, to: str = ADMIN) -> list[Any]:
        return self.house.rows(
            "SELECT * FROM email_queue WHERE recipient_email = %s"
            " AND template_type = 'mailgres_alert' ORDER BY id",
            to,
        )


@pytest.fixture
def desk(house: House, hook: Hook) -> Desk:
    return Desk(house, hook)


def rendered(house: House, queue_id: object) -> tuple[str, str]:
    """Subject and text of an alert, as the worker renders it."""
    house.use_provider("resend")
    (email,) = [one for one in house.claim() if one.id == queue_id]
    store = Store(house.url, worker="test")
    try:
        known = {name: getattr(email, name) for name in Email.__dataclass_fields__}
        known["payload"] = json.dumps(email.payload)
        (message,) = Renderer(store, "mailgres@example.com").render([Email(**known)])
    finally:
        store.close()
    assert message.text  # type: ignore[union-attr]
    return message.subject, message.text  # type: ignore[union-attr]


def test_by_log_webhook_and_mail(desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    desk.die(3, error_code="no_mailbox")
    with caplog.at_level(logging.INFO):
        assert desk.tell() == 3
    (news,) = hook.news
    assert (news["event"], news["new"], news["total"]) == ("DeadLetters", 3, 3)
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


def test_no_loops(desk: Desk, hook: Hook) -> None:
    """That a message about dead letters died is nothing to write about."""
    desk.die()
    desk.tell()
    for _ in range(3):
        desk.house.run(DEAD_ALERT)
        assert desk.tell(after=20 * MINUTE) == 0
    assert (len(hook.news), len(desk.mails())) == (1, 1)


def test_alarm_and_ceiling(desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    desk.die(100)
    desk.tell()
    desk.die()
    desk.tell(after=15 * MINUTE)
    desk.die(9900)
    desk.tell(after=15 * MINUTE)
    assert [one["level"] for one in hook.news] == ["none", "alarm", "ceiling"]
    assert [one["total"] for one in hook.news] == [100, 101, 10001]
    assert "ceiling: 10001 in all" in caplog.text
    assert desk.house.value("SELECT count(*) FROM email_dead_letters") == 10001, "none is dropped"
    desk.house.run("DELETE FROM email_queue WHERE status = 'failed'")
    desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 3
    assert desk.house.value("SELECT level FROM mailgres.notices") == "none"


def test_an_alarm_waits_its_turn(desk: Desk, hook: Hook) -> None:
    desk.die(100)
    desk.tell()
    desk.die()
    desk.tell()
    desk.tell(after=15 * MINUTE)
    assert [one["level"] for one in hook.news] == ["none", "alarm"]


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
    assert mail.payload["total"] is None
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


@pytest.mark.parametrize("fault", ["status", "reset", "redirect", "gone"])
def test_a_webhook_that_fails_blocks_nobody(
    desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    hook.status = {"status": 500, "redirect": 302}.get(fault, 200)
    hook.headers = {"location": "http://127.0.0.1:1/"} if fault == "redirect" else {}
    hook.reset = fault == "reset"
    if fault == "gone":
        desk.alerts = Alerts(ADMIN, f"http://127.0.0.1:1/{SECRET}")
    desk.die()
    assert desk.tell() == 1
    assert "the alert webhook failed: " in caplog.text
    assert SECRET not in caplog.text
    assert len(desk.mails()) == 1
    assert desk.house.value("SELECT webhook_failures FROM mailgres.notices") == 1


def test_ten_failures_switch_it_off(
    desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 500
    for _ in range(12):
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 10
    assert caplog.text.count("is switched off") == 1
    (off,) = [one for one in desk.mails() if one.payload["event"] == "WebhookOff"]
    desk.house.run("UPDATE email_queue SET priority = 9, ready = false WHERE id <> %s", off.id)
    subject, text = rendered(desk.house, off.id)
    assert subject == "mailgres: the alert webhook is off"
    assert "failed 10 times in a row" in text

    # As the message says.
    desk.house.run(
        "SELECT mailgres.note_webhook(webhook, true) FROM mailgres.notices"
        " WHERE audience = 'operators'"
    )
    hook.status = 204
    desk.die()
    desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 11
    assert desk.house.value("SELECT webhook_failures FROM mailgres.notices") == 0


def test_another_webhook_is_tried(desk: Desk, hook: Hook) -> None:
    good, desk.alerts = desk.alerts, Alerts(None, "http://127.0.0.1:1/")
    for _ in range(10):
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert desk.house.value("SELECT webhook_off_since IS NOT NULL FROM mailgres.notices")
    desk.alerts = good
    desk.die()
    desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 1
    assert desk.house.value("SELECT webhook_off_since IS NULL FROM mailgres.notices")


def test_by_hand(desk: Desk, hook: Hook) -> None:
    """With the settings that a worker has."""
    desk.die(2)
    done = Program(desk.house.url).run(
        "janitor", "tell", MAILGRES_ALERT_EMAIL=ADMIN, MAILGRES_ALERT_WEBHOOK=hook.url
    )
    assert json.loads(done.stdout)["handled"] == 2
    assert done.stderr == "2 new dead letters (operators)\n"
    assert (len(hook.news), len(desk.mails())) == (1, 1)


def test_a_success_forgets_failures(desk: Desk, hook: Hook) -> None:
    for number in range(19):
        hook.status = 200 if number == 9 else 500
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 19
    assert desk.house.value("SELECT webhook_off_since IS NULL FROM mailgres.notices")
