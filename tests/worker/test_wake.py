"""A new email wakes an idle worker at once; polling once a minute would be too slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from mailgres.providers.faulty import Fault, FaultyProvider
from support.postgres import Connect
from support.queue import Queue
from worker.double import Double
from worker.harness import DEADLINE, Process, WorkerHarness, until

RARELY = 3600.0
"""Seconds between two polls, longer than any test: an email that is sent has woken the worker."""
ASLEEP = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND query LIKE '%mailgres.mark_asleep(%' AND state = 'idle'
      AND state_change < clock_timestamp() - interval '300 milliseconds'
"""


@contextmanager
def sleeping_worker(harness: WorkerHarness) -> Iterator[Process]:
    """A worker that has looked several times, found nothing, and sleeps deeply."""
    harness.use_double()
    with harness.worker(poll=RARELY) as worker:
        until(lambda: harness.value(ASLEEP) == 1, "it sleeps")
        yield worker


def test_a_new_email_wakes_a_sleeping_worker(harness: WorkerHarness) -> None:
    with sleeping_worker(harness):
        for n in range(1, 4):
            harness.enqueue()
            until(lambda: harness.ledger.accepted().total() == n, "it is sent")  # noqa: B023
            until(lambda: harness.value(ASLEEP) == 1, "it sleeps again")


def test_no_notification_is_sent_while_workers_are_awake(
    harness: WorkerHarness, connect: Connect
) -> None:
    """The price of waking is paid only for those who sleep."""
    listener = connect()
    listener.execute("LISTEN mailgres")
    heard = (notify.payload for notify in listener.notifies())
    with sleeping_worker(harness) as worker:
        harness.enqueue()
        assert next(heard) == ""
        worker.stop()
    harness.run("SELECT pg_notify('mailgres', 'stopped')")
    assert "stopped" in heard, "everything before is read"
    harness.enqueue()
    harness.run("SELECT pg_notify('mailgres', 'end')")
    assert next(heard) == "end"


def test_a_transaction_that_commits_late_wakes_the_worker(
    harness: WorkerHarness, connect: Connect
) -> None:
    """It enqueued before the worker fell asleep, and commits after."""
    slow = connect(autocommit=False)
    Queue(slow).enqueue()
    with sleeping_worker(harness):
        assert not harness.ledger.accepted()
        slow.commit()
        until(harness.ledger.accepted, "it is sent")


def test_a_scheduled_email_is_sent_when_it_is_due(harness: WorkerHarness) -> None:
    """It goes when it is due, whenever the next poll would be."""
    with sleeping_worker(harness):
        due = datetime.now(UTC) + timedelta(seconds=1)
        email = harness.enqueue(scheduled_for=due)
        until(lambda: harness.status_of(email) == "sent", "it is sent")
    assert due <= harness.email(email).last_attempt_at < due + timedelta(seconds=DEADLINE)


def test_a_retry_is_sent_when_it_is_due(harness: WorkerHarness) -> None:
    """What the worker itself puts off, it takes up in time."""
    harness.use_double()
    provider = FaultyProvider(Double(harness.ledger), [Fault(calls=frozenset({1}))])
    with harness.running(provider, poll=RARELY):
        email = harness.enqueue(retry_policy="development")
        until(lambda: harness.status_of(email) == "sent", "it is sent")
    assert harness.email(email).retries == 1


def test_a_sleeping_worker_wakes_for_the_retry_of_a_slow_call(harness: WorkerHarness) -> None:
    """By the time it fails, its worker sleeps deeply."""
    harness.use_double()
    failing = Fault(calls=frozenset({1}), delay=1.0)
    with harness.running(FaultyProvider(Double(harness.ledger), [failing]), poll=RARELY):
        email = harness.enqueue(retry_policy="development")
        until(lambda: harness.status_of(email) == "sent", "it is sent")
    assert harness.email(email).retries == 1


def test_emails_given_back_wake_another_worker(harness: WorkerHarness) -> None:
    """A worker that stops leaves its emails to one that sleeps."""
    harness.use_double()
    email = harness.enqueue()
    held = harness.row("SELECT * FROM mailgres.claim('other', 1)")
    with sleeping_worker(harness):
        harness.run("SELECT mailgres.give_back(%s, %s)", held.lease_token, [email])
        until(lambda: harness.status_of(email) == "sent", "it is sent")


def test_a_sleeping_worker_stops_at_once(harness: WorkerHarness) -> None:
    with sleeping_worker(harness) as worker:
        assert worker.stop()["claimed"] == 0
    assert harness.value("SELECT count(*) FROM mailgres.sleepers") == 0
