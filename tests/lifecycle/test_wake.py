"""Enqueuing wakes a worker when, and only when, one sleeps that wants to know."""

from __future__ import annotations

import psycopg
import pytest

from support.postgres import Connect
from support.queue import Queue, report

MAIL = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', p_scheduled_for => {})"
BULK = """
    SELECT enqueue_emails(jsonb_agg(jsonb_build_object(
        'template_type', 'welcome_user', 'recipient_email', 'user' || n || '@example.com')))
    FROM generate_series(1, 500) n
"""
PLAIN = (
    "INSERT INTO email_queue (template_type, recipient_email)"
    " VALUES ('welcome_user', 'ana@example.com')"
)
ASLEEP = "10 minutes"


class Listener:
    """A connection that listens as a worker does."""

    def __init__(self, listener: psycopg.Connection, sender: psycopg.Connection) -> None:
        self._listener = listener
        self._sender = sender
        listener.execute("LISTEN mailgres")

    def heard(self) -> int:
        """Return how many notifications came: those before one that is sent now."""
        self._sender.execute("SELECT pg_notify('mailgres', 'end')")
        count = 0
        for notification in self._listener.notifies():
            if notification.payload == "end":
                break
            count += 1
        return count


@pytest.fixture
def listener(connect: Connect) -> Listener:
    return Listener(connect(), connect())


def sleep(queue: Queue, until: str = ASLEEP) -> None:
    """Let a worker sleep; negative: it should have woken up by then."""
    queue.run("INSERT INTO mailgres.sleepers VALUES ('w', clock_timestamp() + %s::interval)", until)


@pytest.mark.parametrize(
    ("asleep", "due", "woken"),
    [
        (None, "NULL", 0),
        (ASLEEP, "NULL", 1),
        (ASLEEP, "now()", 1),
        (ASLEEP, "now() - interval '1 day'", 1),
        (ASLEEP, "now() + interval '5 minutes'", 1),
        (ASLEEP, "now() + interval '1 hour'", 0),
        ("-1 second", "NULL", 0),
    ],
)
def test_enqueuing_wakes_a_worker_that_sleeps_longer(
    committed: Queue, listener: Listener, asleep: str | None, due: str, woken: int
) -> None:
    if asleep:
        sleep(committed, asleep)
    committed.run(MAIL.format(due))
    assert listener.heard() == woken


def test_enqueuing_wakes_if_any_worker_sleeps_longer(committed: Queue, listener: Listener) -> None:
    sleep(committed, "-1 second")
    committed.run("INSERT INTO mailgres.sleepers VALUES ('long', now() + interval '1 day')")
    committed.run(MAIL.format("now() + interval '1 hour'"))
    assert listener.heard() == 1


@pytest.mark.parametrize("statement", [BULK, PLAIN, f"{PLAIN}, ('welcome_user', 'b@example.com')"])
def test_one_statement_wakes_once(committed: Queue, listener: Listener, statement: str) -> None:
    sleep(committed)
    committed.run(statement)
    assert listener.heard() == 1


@pytest.mark.parametrize("first", ["NULL", "now() + interval '1 hour'"])
def test_one_transaction_wakes_once(committed: Queue, listener: Listener, first: str) -> None:
    """Also when the first email of it is for later."""
    sleep(committed)
    with committed.conn.transaction():
        committed.run(MAIL.format(first))
        committed.run(MAIL.format("NULL"))
        committed.run(MAIL.format("NULL"))
    assert listener.heard() == 1


def test_each_transaction_checks_for_sleepers_again(committed: Queue, listener: Listener) -> None:
    """What a transaction has seen says nothing about the next of the same connection."""
    committed.run(MAIL.format("NULL"))
    sleep(committed)
    for _ in range(3):
        committed.run(MAIL.format("NULL"))
    assert listener.heard() == 3


def test_a_rollback_wakes_no_worker(committed: Queue, listener: Listener) -> None:
    sleep(committed)
    with committed.conn.transaction(force_rollback=True):
        committed.run(MAIL.format("NULL"))
    assert listener.heard() == 0


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_worker_falls_asleep_before_the_commit(
    committed: Queue, connect: Connect, listener: Listener, isolation: str
) -> None:
    application = Queue(connect())
    application.run(f"BEGIN ISOLATION LEVEL {isolation}")
    application.run(MAIL.format("NULL"))
    sleep(committed)
    application.run("COMMIT")
    assert listener.heard() == 1


def test_a_worker_is_woken_at_the_commit(
    committed: Queue, connect: Connect, listener: Listener
) -> None:
    sleep(committed)
    application = Queue(connect())
    with application.conn.transaction():
        application.run(MAIL.format("NULL"))
        assert listener.heard() == 0
    assert listener.heard() == 1


@pytest.mark.parametrize(
    ("statement", "woken"),
    [
        ("UPDATE email_queue SET next_retry_at = now()", 1),
        ("UPDATE email_queue SET next_retry_at = now() + interval '5 minutes'", 1),
        ("UPDATE email_queue SET next_retry_at = now() + interval '2 hours'", 0),
        ("UPDATE email_queue SET priority = 1", 0),
        ("UPDATE email_queue SET status = 'cancelled'", 0),
        ("SELECT reschedule_email(id, now()) FROM email_queue", 1),
        ("SELECT reschedule_email(id, now() + interval '2 days') FROM email_queue", 0),
        ("SELECT retry_email(id) FROM email_queue", 1),
    ],
)
def test_changes_by_hand_that_make_an_email_due_wake_a_worker(
    committed: Queue, listener: Listener, statement: str, woken: int
) -> None:
    committed.run(MAIL.format("now() + interval '1 hour'"))
    sleep(committed)
    committed.run(statement)
    assert listener.heard() == woken


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_retry_email_wakes_a_worker(committed: Queue, listener: Listener, status: str) -> None:
    queue_id = committed.enqueue()
    committed.run("UPDATE email_queue SET status = %s", status)
    sleep(committed)
    committed.run("SELECT retry_email(%s)", queue_id)
    assert listener.heard() == 1


def test_a_retry_or_given_back_email_wakes_workers(committed: Queue, listener: Listener) -> None:
    """By then it may sleep itself: it wakes to see when the email is due. Others do, too."""
    for _ in range(4):
        committed.enqueue()
    sent, retried, deferred, given_back = committed.claim()
    sleep(committed)
    committed.finish(report(sent, "sent"))
    assert listener.heard() == 0
    committed.finish(report(retried, "transient"), report(deferred, "rate"))
    assert listener.heard() == 1
    committed.run("SELECT mailgres.give_back(%s, %s)", given_back.lease_token, [given_back.id])
    assert listener.heard() == 1


def test_a_retry_after_the_next_poll_wakes_no_worker(committed: Queue, listener: Listener) -> None:
    """Sleeping workers poll before that anyway."""
    committed.enqueue(retry_policy="patient")
    (email,) = committed.claim()
    sleep(committed, "1 minute")
    committed.finish(report(email, "transient"))
    assert listener.heard() == 0
