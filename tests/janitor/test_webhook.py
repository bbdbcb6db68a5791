"""The alert webhook: what it gets, and that no failure of it stops anything else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from doubles.http_server import Reply, serving
from janitor.harness import ME, JanitorHarness
from janitor.notifier import ADMIN, MINUTE, SECRET, WITHOUT_WEBHOOK, Hook, Notifier
from mailgres.janitor import JANITORS, AlertTargets, notify
from mailgres.janitor.scheduler import Scheduler
from support.concurrency import until

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


def waiting(harness: JanitorHarness) -> list[Any]:
    return harness.rows("SELECT * FROM mailgres.notifications ORDER BY id")


# --- what it gets


def test_a_notification_for_slack_has_the_format_of_slack() -> None:
    name = "tenant_dead_letters (&lt;!channel&gt; &amp; co)"
    text = notify.body("https://hooks.slack.com/services/T/B/x", "auto", ALERTS)["text"]
    assert text.splitlines() == [
        f":large_orange_circle: warning: {name}: 51 emails, threshold 50; see docs/runbook.md#x",
        f":large_green_circle: resolved: {name}",
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


def test_the_webhook_gets_a_message_in_the_format_of_slack(notifier: Notifier, hook: Hook) -> None:
    notifier.alerts = AlertTargets(None, hook.url, "slack")
    notifier.die()
    notifier.run()
    assert hook.got == [{"text": "mailgres: 1 new dead letters\n• 1 of welcome_user: permanent"}]


def test_no_transaction_is_open_during_a_webhook_call(
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
    notifier.run()
    assert seen == [((0,), 0)]


# --- failures


@pytest.mark.parametrize("fault", ["status", "reset", "redirect", "gone"])
def test_a_webhook_that_fails_does_not_stop_the_notification_email(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    hook.status = {"status": 500, "redirect": 302}.get(fault, 200)
    hook.headers = {"location": "http://127.0.0.1:1/"} if fault == "redirect" else {}
    hook.reset = fault == "reset"
    if fault == "gone":
        notifier.alerts = AlertTargets(ADMIN, f"http://127.0.0.1:1/{SECRET}")
    notifier.die()
    assert notifier.dead_letters_notified() == 1
    assert "the alert webhook failed: " in caplog.text
    assert SECRET not in caplog.text
    assert len(notifier.mails()) == 1
    assert failures(notifier.harness) == 1


@contextmanager
def endless() -> Iterator[str]:
    """Serve an answer whose headers never end."""
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


def test_a_webhook_call_ends_after_its_timeout_even_if_bytes_keep_arriving(
    notifier: Notifier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "WEBHOOK_TIMEOUT_SECONDS", 0.3)
    with endless() as url:
        notifier.alerts = AlertTargets(ADMIN, url)
        notifier.die()
        assert notifier.dead_letters_notified() == 1
        assert "the alert webhook failed: no answer in 0.3 s" in caplog.text
        assert failures(notifier.harness) == 1
    until(
        lambda: not [one for one in threading.enumerate() if one.name == "alert-webhook"],
        "the thread of the call has ended",
    )


def test_while_the_webhook_hangs_the_other_janitors_run(notifier: Notifier) -> None:
    """It holds no connection, and the scheduler can stop."""
    harness, reached, go_on = notifier.harness, threading.Event(), threading.Event()

    def hang(*_: Any) -> Reply:
        reached.set()
        go_on.wait()
        return Reply(200, b"")

    notifier.die()
    notifier.harness.run(WITHOUT_WEBHOOK)
    with serving(hang) as url:
        worker = type(ME)("w", alerts=AlertTargets(None, url))
        every = [JANITORS["notify"], JANITORS["promote"], JANITORS["heartbeat"]]
        queue_id = harness.enqueue(scheduled_for=harness.clock.now + MINUTE)
        scheduler = Scheduler(harness.pool, worker, every)
        scheduler.start()
        assert reached.wait(60)
        harness.clock.forward(MINUTE)
        until(lambda: harness.email(queue_id).ready, "it is promoted")
        until(
            lambda: (
                harness.pool.get_stats()["pool_available"] == harness.pool.get_stats()["pool_size"]
            ),
            "no connection is in use",
        )
        go_on.set()
        assert scheduler.stop()


def test_ten_failures_in_a_row_switch_the_webhook_off_and_fire_an_alert(
    notifier: Notifier, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    notifier.harness.run("UPDATE mailgres.alert_rules SET enabled = false")
    hook.status = 500
    for _ in range(12):
        notifier.die()
        notifier.run(after=15 * MINUTE)
    assert len(hook.got) == 10
    assert caplog.text.count("is switched off") == 1
    notifier.harness.run("UPDATE mailgres.alert_rules SET enabled = name = 'webhook_off'")
    assert notifier.alerts_notified() == 1
    assert notifier.firing() == [("webhook_off", "")]
    assert "warning: webhook_off: 10 failures" in caplog.text
    assert notifier.mails()[-1].payload["firing"][0]["rule"] == "webhook_off"

    assert notifier.harness.value("SELECT mailgres.reset_webhook()") is True
    assert notifier.harness.value("SELECT mailgres.reset_webhook()") is False
    hook.status = 204
    notifier.run()
    assert [one["event"] for one in hook.got[10:]][-1] == "Alerts"
    assert (failures(notifier.harness), is_off(notifier.harness), waiting(notifier.harness)) == (
        0,
        False,
        [],
    )
    assert notifier.firing() == []


def test_another_webhook_is_called_after_one_was_switched_off(
    notifier: Notifier, hook: Hook
) -> None:
    good, notifier.alerts = notifier.alerts, AlertTargets(None, "http://127.0.0.1:1/")
    for _ in range(10):
        notifier.die()
        notifier.run(after=15 * MINUTE)
    assert is_off(notifier.harness)
    notifier.alerts = good
    notifier.die()
    notifier.run(after=15 * MINUTE)
    assert hook.got[-1]["new"] == 1
    assert not is_off(notifier.harness)


def test_a_successful_webhook_call_resets_the_count_of_failures(
    notifier: Notifier, hook: Hook
) -> None:
    for number in range(19):
        hook.status = 200 if number == 9 else 500
        notifier.die()
        notifier.run(after=15 * MINUTE)
    assert failures(notifier.harness) == 9
    assert not is_off(notifier.harness)


def test_slow_webhook_calls_end_before_the_next_run_of_the_notifier(
    notifier: Notifier, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is posted after a minute, when no process holds it any more."""
    clock = SimpleNamespace(now=0.0)
    answer = Hook.__call__

    def slow(self: Hook, *request: Any) -> Reply:
        clock.now += 0.9 * notify.WEBHOOK_TIMEOUT_SECONDS
        return answer(self, *request)

    monkeypatch.setattr(Hook, "__call__", slow)
    monkeypatch.setattr(notify, "time", SimpleNamespace(monotonic=lambda: clock.now))
    insert = "INSERT INTO mailgres.notifications (body) SELECT '{}' FROM generate_series(1, 5)"
    notifier.harness.run(insert)
    notifier.run()
    assert len(hook.got) == 2
    assert clock.now < JANITORS["notify"].every.total_seconds()
    notifier.run()
    assert len(hook.got) == 2
    notifier.run(after=MINUTE)
    assert len(hook.got) == 4


# --- notifications are neither lost nor posted twice


def test_a_failed_webhook_call_is_retried_a_minute_apart_until_it_succeeds(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.die()
    notifier.harness.run(WITHOUT_WEBHOOK)
    hook.status = 500
    for _ in range(5):
        notifier.run()
        notifier.run()  # too early
        notifier.harness.clock.forward(MINUTE)
    assert len(hook.got) == 5
    hook.status = 200
    notifier.run()
    assert len(hook.got) == 6
    assert waiting(notifier.harness) == []
    assert {one["id"] for one in hook.got} == {hook.got[0]["id"]}


def test_a_notification_of_a_dead_process_is_posted_by_another_after_a_minute(
    notifier: Notifier, hook: Hook
) -> None:
    notifier.die()
    notifier.harness.run(WITHOUT_WEBHOOK)
    notifier.harness.run("SELECT mailgres.notify(NULL, NULL, 'digest')")
    notifier.run()
    assert hook.got == [], "another process is posting it"
    notifier.harness.clock.forward(MINUTE)
    notifier.run()
    notifier.run()
    assert [one["new"] for one in hook.got] == [1]


def test_notifications_expire_after_an_hour(notifier: Notifier, hook: Hook) -> None:
    notifier.die()
    notifier.harness.run(WITHOUT_WEBHOOK)
    notifier.run(after=60 * MINUTE)
    assert (hook.got, waiting(notifier.harness)) == ([], [])


def test_notifications_wait_for_a_worker_that_has_the_webhook(
    notifier: Notifier, hook: Hook
) -> None:
    alerts, notifier.alerts = notifier.alerts, AlertTargets()
    notifier.die()
    notifier.run()
    notifier.alerts = alerts
    notifier.run()
    assert [one["new"] for one in hook.got] == [1]
