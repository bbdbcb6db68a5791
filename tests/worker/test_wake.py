"""An idle worker hears of a new email at once; polling once a minute would not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from mailgres.providers.faulty import Fault, FaultyProvider
from support.postgres import Connect
from support.queue import Queue
from worker.bench import Bench, Process, until
from worker.double import Double

RARELY = 60.0
SOON = 20.0
"""Far more than it takes, far less than until the next poll."""
ASLEEP = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND query LIKE '%mailgres.sleep(%' AND state = 'idle'
      AND state_change < clock_timestamp() - interval '300 milliseconds'
"""


@contextmanager
def sleeping_worker(bench: Bench) -> Iterator[Process]:
    """A worker that has looked several times, found nothing, and sleeps deeply."""
    bench.use_double()
    with bench.worker(poll=RARELY) as worker:
        until(lambda: bench.value(ASLEEP) == 1, "it sleeps")
        yield worker


def test_a_new_email(bench: Bench) -> None:
    with sleeping_worker(bench):
        for n in range(1, 4):
            bench.enqueue()
            until(lambda: bench.ledger.accepted().total() == n, "it is sent", SOON)  # noqa: B023
            until(lambda: bench.value(ASLEEP) == 1, "it sleeps again")


def test_nobody_is_notified_of_what_is_awake(bench: Bench, connect: Connect) -> None:
    """The price of waking is paid only for those who sleep."""
    listener = connect()
    listener.execute("LISTEN mailgres")
    with sleeping_worker(bench):
        bench.enqueue()
        assert list(listener.notifies(timeout=SOON, stop_after=1))
    bench.run("DELETE FROM mailgres.sleepers")
    bench.enqueue()
    assert not list(listener.notifies(timeout=0.3))


def test_a_transaction_that_commits_late(bench: Bench, connect: Connect) -> None:
    """It enqueued before the worker fell asleep, and commits after."""
    slow = connect(autocommit=False)
    Queue(slow).enqueue()
    with sleeping_worker(bench):
        assert not bench.ledger.accepted()
        slow.commit()
        until(bench.ledger.accepted, "it is sent", SOON)


def test_an_email_for_later(bench: Bench) -> None:
    """It goes when it is due, whenever the next poll would be."""
    with sleeping_worker(bench):
        due = datetime.now(UTC) + timedelta(seconds=1)
        email = bench.enqueue(scheduled_for=due)
        until(lambda: bench.status_of(email) == "sent", "it is sent", SOON)
    assert due <= bench.email(email).last_attempt_at < due + timedelta(seconds=SOON)


def test_a_retry(bench: Bench) -> None:
    """What the worker itself puts off, it takes up in time."""
    bench.use_double()
    provider = FaultyProvider(Double(bench.ledger), [Fault(calls=frozenset({1}))])
    with bench.running(provider, poll=RARELY):
        email = bench.enqueue(retry_policy="development")
        until(lambda: bench.status_of(email) == "sent", "it is sent", SOON)
    assert bench.email(email).retries == 1


def test_a_retry_of_a_call_that_took_long(bench: Bench) -> None:
    """By the time it fails, its worker sleeps deeply."""
    bench.use_double()
    failing = Fault(calls=frozenset({1}), delay=1.0)
    with bench.running(FaultyProvider(Double(bench.ledger), [failing]), poll=RARELY):
        email = bench.enqueue(retry_policy="development")
        until(lambda: bench.status_of(email) == "sent", "it is sent", SOON)
    assert bench.email(email).retries == 1


def test_given_back_by_another(bench: Bench) -> None:
    """A worker that stops leaves its emails to one that sleeps."""
    bench.use_double()
    email = bench.enqueue()
    held = bench.row("SELECT * FROM mailgres.claim('other', 1)")
    with sleeping_worker(bench):
        bench.run("SELECT mailgres.give_back(%s, %s)", held.lease_token, [email])
        until(lambda: bench.status_of(email) == "sent", "it is sent", SOON)


def test_stops_while_it_sleeps(bench: Bench) -> None:
    with sleeping_worker(bench) as worker:
        assert worker.stop()["claimed"] == 0
    assert bench.value("SELECT count(*) FROM mailgres.sleepers") == 0
