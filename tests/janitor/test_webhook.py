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
from janitor.desk import ADMIN, MINUTE, SECRET, Desk, Hook
from janitor.house import ME, House, until
from mailgres.janitor import JANITORS, Alerts, channels, webhook
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


def failures(house: House) -> int:
    found: int = house.value("SELECT webhook_failures FROM mailgres.notices")
    return found


def is_off(house: House) -> bool:
    found: bool = house.value("SELECT webhook_off_since IS NOT NULL FROM mailgres.notices")
    return found


def news(house: House) -> list[Any]:
    return house.rows("SELECT * FROM mailgres.news ORDER BY id")


# --- what it is called with


def test_slack() -> None:
    name = "tenant_dead_letters (&lt;!channel&gt; &amp; co)"
    text = channels.body("https://hooks.slack.com/services/T/B/x", "auto", ALERTS)["text"]
    assert text.splitlines() == [
        f":large_orange_circle: warning: {name}: 51 emails, threshold 50; see docs/runbook.md#x",
        f":large_green_circle: over: {name}",
        "and 2 more",
    ]
    text = channels.body("https://hooks.slack.com/services/T/B/x", "auto", DEAD)["text"]
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
def test_formats(url: str, form: str, *, is_slack: bool) -> None:
    assert (channels.body(url, form, ALERTS) == ALERTS) is not is_slack


def test_in_slacks_form(desk: Desk, hook: Hook) -> None:
    desk.alerts = Alerts(None, hook.url, "slack")
    desk.die()
    desk.tell()
    assert hook.news == [{"text": "mailgres: 1 new dead letters\n• 1 of welcome_user: permanent"}]


def test_no_transaction_is_open_meanwhile(
    desk: Desk, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: psycopg.Connection = connect()
    seen: list[Any] = []
    answer = Hook.__call__

    def watching(self: Hook, *request: Any) -> Reply:
        seen.append((other.execute(OPEN_TRANSACTIONS).fetchone(), desk.house.locks()))
        return answer(self, *request)

    monkeypatch.setattr(Hook, "__call__", watching)
    desk.die()
    desk.tell()
    assert seen == [((0,), 0)]


# --- one that fails


@pytest.mark.parametrize("fault", ["status", "reset", "redirect", "gone"])
def test_one_that_fails_blocks_nobody(
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
    assert failures(desk.house) == 1


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


def test_one_that_hangs(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However alive it looks: the limit is for the call as a whole."""
    monkeypatch.setattr(webhook, "TIMEOUT", 0.3)
    with endless() as url:
        desk.alerts = Alerts(ADMIN, url)
        desk.die()
        assert desk.tell() == 1
        assert "the alert webhook failed: no answer in 0.3 s" in caplog.text
        assert failures(desk.house) == 1
    until(lambda: not [one for one in threading.enumerate() if one.name == "alert-webhook"])


def test_while_it_hangs_the_other_janitors_work(desk: Desk) -> None:
    """Nor does it keep a connection, or whoever ends the worker."""
    house, reached, go_on = desk.house, threading.Event(), threading.Event()

    def hang(*_: Any) -> Reply:
        reached.set()
        go_on.wait()
        return Reply(200, b"")

    desk.die()
    desk.run("tell")
    with serving(hang) as url:
        worker = type(ME)("w", alerts=Alerts(None, url))
        every = [JANITORS["webhook"], JANITORS["promote"], JANITORS["heartbeat"]]
        queue_id = house.enqueue(scheduled_for=house.clock.now + MINUTE)
        scheduler = Scheduler(house.pool, worker, every)
        scheduler.start()
        assert reached.wait(60)
        house.clock.forward(MINUTE)
        until(lambda: house.email(queue_id).ready)
        until(
            lambda: house.pool.get_stats()["pool_available"] == house.pool.get_stats()["pool_size"]
        )
        go_on.set()
        assert scheduler.stop()


def test_ten_failures_switch_it_off(
    desk: Desk, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = 500
    for _ in range(12):
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert len(hook.news) == 10
    assert caplog.text.count("is switched off") == 1
    desk.house.run("UPDATE mailgres.alert_rules SET enabled = name = 'webhook_off'")
    assert desk.check() == 1
    assert desk.firing() == [("webhook_off", "")]
    assert "warning: webhook_off: 10 failures" in caplog.text
    assert desk.mails()[-1].payload["firing"][0]["rule"] == "webhook_off"

    assert desk.house.value("SELECT mailgres.reset_webhook()") is True
    assert desk.house.value("SELECT mailgres.reset_webhook()") is False
    hook.status = 204
    desk.tell()
    assert [one["event"] for one in hook.news[10:]][-1] == "Alerts"
    assert (failures(desk.house), is_off(desk.house), news(desk.house)) == (0, False, [])
    assert desk.firing() == []


def test_another_one_is_tried(desk: Desk, hook: Hook) -> None:
    good, desk.alerts = desk.alerts, Alerts(None, "http://127.0.0.1:1/")
    for _ in range(10):
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert is_off(desk.house)
    desk.alerts = good
    desk.die()
    desk.tell(after=15 * MINUTE)
    assert hook.news[-1]["new"] == 1
    assert not is_off(desk.house)


def test_a_success_forgets_failures(desk: Desk, hook: Hook) -> None:
    for number in range(19):
        hook.status = 200 if number == 9 else 500
        desk.die()
        desk.tell(after=15 * MINUTE)
    assert failures(desk.house) == 9
    assert not is_off(desk.house)


# --- news are neither lost nor told twice


def test_a_call_that_failed_is_made_again(desk: Desk, hook: Hook) -> None:
    desk.die()
    desk.run("tell")
    hook.status = 500
    for _ in range(5):
        desk.call()  # the second waits for a minute
        desk.call()
        desk.house.clock.forward(MINUTE)
    assert len(hook.news) == 3, "then it is given up"
    assert news(desk.house) == []
    assert {one["id"] for one in hook.news} == {hook.news[0]["id"]}


def test_who_dies_meanwhile_leaves_it_to_others(desk: Desk, hook: Hook) -> None:
    desk.die()
    desk.run("tell")
    desk.house.run("SELECT mailgres.take_news('digest')")
    desk.call()
    assert hook.news == [], "somebody is at it"
    desk.house.clock.forward(MINUTE)
    desk.call()
    desk.call()
    assert [one["new"] for one in hook.news] == [1]


def test_old_news_are_none(desk: Desk, hook: Hook) -> None:
    desk.die()
    desk.run("tell")
    desk.house.clock.forward(60 * MINUTE)
    assert desk.call() == 1
    assert (hook.news, news(desk.house)) == ([], [])


def test_without_a_webhook_they_wait_for_a_worker_that_has_one(desk: Desk, hook: Hook) -> None:
    alerts, desk.alerts = desk.alerts, Alerts()
    desk.die()
    desk.tell()
    desk.alerts = alerts
    desk.call()
    assert [one["new"] for one in hook.news] == [1]
