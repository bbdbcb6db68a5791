"""The alert webhook: what it is called with, and that whatever it does stops nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from doubles.http_server import Reply, serving
from janitor.harness import ME, JanitorHarness, until
from janitor.notifier import ADMIN, MINUTE, SECRET, Hook, Notifier
from mailgres.janitor import JANITORS, AlertTargets, notify
from mailgres.janitor.scheduler import Scheduler

OPEN_TRANSACTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""
ALERT = {
    "rule": "tenant_dead_letters",
    "subject": "<!channel> & co",
    "severity": "warning",
    "figure": 51,
    "threshold": 50,
    "unit": "emails",
    "runbook": "docs/runbook.md#x",
}
ALERTS = {"event": "Alerts", "firing": [ALERT], "resolved": [ALERT], "more": 2}
DEAD = {
    "event": "DeadLetters",
    "new": 3,
    "reasons": [{"emails": 3, "template": "welcome_user", "reason": "permanent", "code": None}],
}


def failures(harness: JanitorHarness) -> int:
    found: int = harness.value("SELECT webhook_failures FROM mailgres.notification_state")
    return found


def is_off(harness: JanitorHarness) -> bool:
    found: bool = harness.value(
        "SELECT webhook_off_since IS NOT NULL FROM mailgres.notification_state"
    )
    return found


def news(harness: JanitorHarness) -> list[Any]:
    return harness.rows("SELECT * FROM mailgres.notifications ORDER BY id")


# --- what it is called with


def test_a_notification_in_slacks_format() -> None:
    name = "tenant_dead_letters (&lt;!channel&gt; &amp; co)"
    text = notify.body("https://hooks.slack.com/services/T/B/x", "auto", ALERTS)["text"]
    assert text.splitlines() == [
        f":large_orange_circle: warning: {name}: 51 emails, threshold 50; see docs/runbook.md#x",
        f":large_green_circle: over: {name}",
        "and 2 more",
    ]
    text = notify.body("https://hooks.slack.com/services/T/B/x", "auto", DEAD)["text"]
    assert text == "mailgres: 3 new dead letters\n• 3 of welcome_user: permanent"


@pytest.mark.parametrize(
    ("url", "form", "is_slack"),
    [
        ("https://hooks.slack.com/x", "auto", True),
        ("https://HOOKS.slack-gov.com/x", "auto", True),
        ("https://hooks.slack.com.example.com/x", "auto", False),
        ("https://example.com/hooks.slack.com", "auto", False),
        ("https://hooks.slack.com/x", "json", False),
        ("https://example.com/x", "slack", True),
    ],
)
def test_the_format_of_a_notification_follows_from_the_url(
    url: str, form: str, *, is_slack: bool
) -> None:
    assert (notify.body(url, form, ALERTS) == ALERTS) is not is_slack


def test_webhook_in_slacks_form(notifier: Notifier, hook: Hook) -> None:
    notifier.alerts = AlertTargets(None, hook.url, "slack")
    notifier.die()
    notifier.tell()
    assert hook.news == [{"text": "mailgres: 1 new dead letters\n• 1 of welcome_user: permanent"}]


def test_no_transaction_is_open_meanwhile(
    notifier: Notifier, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: psycopg.Connection = connect()
    seen: list[Any] = []
    answer = Hook.__call__

    def watching(self: Hook, *request: Any) -> Reply:
        seen.append((other.execute(OPEN_TRANSACTIONS).fetchone(), notifier.harness.locks()))
        return answer(self, *request)

    monkeypatch.setattr(Hook, "__call__", watching)
    notifier.die()
    notifier.tell()
    assert seen == [((0,), 0)]


# --- one that fails


@pytest.mark.parametrize("fault", ["status", "reset", "redirect", "gone"])
def test_one_that_fails_blocks_nobody(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    hook.status = {"status": 500, "redirect": 302}.get(fault, 200)
    hook.headers = {"location": "http://127.0.0.1:1/"} if fault == "redirect" else {}
    hook.reset = fault == "reset"
    if fault == "gone":
        notifier.alerts = AlertTargets(ADMIN, f"http://127.0.0.1:1/{SECRET}")
    notifier.die()
    assert notifier.tell() == 1
    assert "the alert webhook failed: " in caplog.text
    assert SECRET not in caplog.text
    assert len(notifier.mails()) == 1
    assert failures(notifier.harness) == 1


@contextmanager
def endless() -> Iterator[str]:
    """A server whose answer never ends to begin, byte by byte."""
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        taken, _ = listener.accept()
        with taken:
            taken.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not stop.wait(0.01):
                taken.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/{SECRET}"
        stop.set()
        thread.join()


def test_webhook_one_that_hangs(
    notifier: Notifier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However alive it looks: the limit is for the call as a whole."""
    monkeypatch.setattr(notify, "WEBHOOK_TIMEOUT_SECONDS", 0.3)
    with endless() as url:
        notifier.alerts = AlertTargets(ADMIN, url)
        notifier.die()
        assert notifier.tell() == 1
        assert "the alert webhook failed: no answer in 0.3 s" in caplog.text
        assert failures(notifier.harness) == 1
    until(lambda: not [one for one in threading.enumerate() if one.name == "alert-webhook"])


def test_while_it_hangs_the_other_janitors_work(notifier: Notifier) -> None:
    """Nor does it keep a connection, or whoever ends the worker."""
    harness, reached, go_on = notifier.harness, threading.Event(), threading.Event()

    def hang(*_: Any) -> Reply:
        reached.set()
        go_on.wait()
        return Reply(200, b"")

    notifier.die()
    notifier.run("notify_dead_letters")
    with serving(hang) as url:
        worker = type(ME)("w", alerts=AlertTargets(None, url))
        every = [JANITORS["deliver_notifications"], JANITORS["promote"], JANITORS["heartbeat"]]
        queue_id = harness.enqueue(scheduled_for=harness.clock.now + MINUTE)
        scheduler = Scheduler(harness.pool, worker, every)
        scheduler.start()
        assert reached.wait(60)
        harness.clock.forward(MINUTE)
        until(lambda: harness.email(queue_id).ready)
        until(
            lambda: (
                harness.pool.get_stats()["pool_available"] == harness.pool.get_stats()["pool_size"]
            )
        )
        go_on.set()
        assert scheduler.stop()


def test_ten_failures_switch_it_off(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 500
    for _ in range(12):
        notifier.die()
        notifier.tell(after=15 * MINUTE)
    assert len(hook.news) == 10
    assert caplog.text.count("is switched off") == 1
    notifier.harness.run("UPDATE mailgres.alert_rules SET enabled = name = 'webhook_off'")
    assert notifier.check() == 1
    assert notifier.firing() == [("webhook_off", "")]
    assert "warning: webhook_off: 10 failures" in caplog.text
    assert notifier.mails()[-1].payload["firing"][0]["rule"] == "webhook_off"

    assert notifier.harness.value("SELECT mailgres.reset_webhook()") is True
    assert notifier.harness.value("SELECT mailgres.reset_webhook()") is False
    hook.status = 204
    notifier.tell()
    assert [one["event"] for one in hook.news[10:]][-1] == "Alerts"
    assert (failures(notifier.harness), is_off(notifier.harness), news(notifier.harness)) == (
        0,
        False,
        [],
    )
    assert notifier.firing() == []


def test_another_one_is_tried(notifier: Notifier, hook: Hook) -> None:
    good, notifier.alerts = notifier.alerts, AlertTargets(None, "http://127.0.0.1:1/")
    for _ in range(10):
        notifier.die()
        notifier.tell(after=15 * MINUTE)
    assert is_off(notifier.harness)
    notifier.alerts = good
    notifier.die()
    notifier.tell(after=15 * MINUTE)
    assert hook.news[-1]["new"] == 1
    assert not is_off(notifier.harness)


def test_a_success_forgets_failures(notifier: Notifier, hook: Hook) -> None:
    for number in range(19):
        hook.status = 200 if number == 9 else 500
        notifier.die()
        notifier.tell(after=15 * MINUTE)
    assert failures(notifier.harness) == 9
    assert not is_off(notifier.harness)


# --- news are neither lost nor told twice


def test_a_call_that_failed_is_made_again(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.run("notify_dead_letters")
    hook.status = 500
    for _ in range(5):
        notifier.call()  # the second waits for a minute
        notifier.call()
        notifier.harness.clock.forward(MINUTE)
    assert len(hook.news) == 3, "then it is given up"
    assert news(notifier.harness) == []
    assert {one["id"] for one in hook.news} == {hook.news[0]["id"]}


def test_who_dies_meanwhile_leaves_it_to_others(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.run("notify_dead_letters")
    notifier.harness.run("SELECT mailgres.deliver_notifications('digest')")
    notifier.call()
    assert hook.news == [], "somebody is at it"
    notifier.harness.clock.forward(MINUTE)
    notifier.call()
    notifier.call()
    assert [one["new"] for one in hook.news] == [1]


def test_notifications_expire_after_an_hour(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.run("notify_dead_letters")
    notifier.harness.clock.forward(60 * MINUTE)
    assert notifier.call() == 1
    assert (hook.news, news(notifier.harness)) == ([], [])


def test_without_a_webhook_they_wait_for_a_worker_that_has_one(
    notifier: Notifier, hook: Hook
) -> None:
    alerts, notifier.alerts = notifier.alerts, AlertTargets()
    notifier.die()
    notifier.tell()
    notifier.alerts = alerts
    notifier.call()
    assert [one["new"] for one in hook.news] == [1]
