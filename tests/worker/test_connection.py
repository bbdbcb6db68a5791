"""How the worker asks the database: in what time, and whether it wants to be woken."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from mailgres.settings import Settings
from mailgres.worker import open_worker
from mailgres.worker.store import Store
from support.postgres import Connect
from worker.harness import WorkerHarness, until

SHORT = timedelta(milliseconds=100)
LONG = timedelta(minutes=1)
LEASE = timedelta(minutes=1)
SLEEPERS = "SELECT count(*) FROM mailgres.sleepers"
WRITTEN = "SELECT pg_current_xact_id_if_assigned()"


def test_every_connection_of_a_worker_has_the_statement_timeout(harness: WorkerHarness) -> None:
    """It holds for every connection: those of the pool, and the one that claims."""
    settings = Settings(database_url=harness.url, statement_timeout=timedelta(seconds=7))
    with open_worker(settings, janitors=False) as worker:
        with worker.store.connection() as pooled:
            assert pooled.execute("SHOW statement_timeout").fetchone() == ("7s",)
        with worker.store.connect() as own:
            assert own.execute("SHOW statement_timeout").fetchone() == ("7s",)


def test_a_claim_that_takes_too_long_is_repeated(harness: WorkerHarness, connect: Connect) -> None:
    """A claim that has to wait for a lock ends; the worker asks again, and nothing is lost."""
    email = harness.enqueue()
    lock = connect(autocommit=False)
    lock.execute("LOCK TABLE email_queue")
    harness.variables["MAILGRES_STATEMENT_TIMEOUT"] = "1s"
    with harness.script("worker") as worker:
        until(lambda: "statement timeout" in worker.log, "the claim gives up")
        lock.rollback()
        until(lambda: harness.status_of(email) == "sent", "it is sent")
        assert worker.stop()["sent"] == 1


def test_without_listen_a_worker_polls(harness: WorkerHarness, connect: Connect) -> None:
    """It finds new emails by polling, and no application pays for a notification."""
    listener = connect()
    listener.execute("LISTEN mailgres")
    harness.variables["MAILGRES_LISTEN"] = "off"
    harness.variables["MAILGRES_POLL_INTERVAL"] = "50ms"
    with harness.script("worker", "--worker-name", "deaf") as worker:
        heard = "SELECT count(*) FROM mailgres.workers WHERE worker = 'deaf'"
        until(lambda: harness.value(heard) == 1, "it works")
        for n in range(1, 4):
            harness.enqueue()
            until(lambda: harness.statuses() == {"sent": n}, "it is sent")  # noqa: B023
            assert harness.value(SLEEPERS) == 0
        worker.stop()
    assert "pooler" not in worker.log
    harness.run("SELECT pg_notify('mailgres', 'end')")
    assert next(listener.notifies()).payload == "end"


@pytest.mark.parametrize(("listen", "registered"), [("auto", 1), ("on", 1), ("off", 0)])
def test_a_worker_registers_as_sleeping_only_if_it_listens(
    harness: WorkerHarness, listen: str, registered: int
) -> None:
    settings = Settings(database_url=harness.url, listen=listen)  # type: ignore[arg-type]
    with open_worker(settings, janitors=False) as worker, worker.store.connect() as connection:
        assert worker.store.listens == bool(registered)
        assert worker.store.mark_asleep(connection, LONG) is None
        assert harness.value(SLEEPERS) == registered


def test_an_idle_worker_writes_nothing(harness: WorkerHarness, connect: Connect) -> None:
    """Polls cost no commit that has to reach the disk: every second, of every worker."""
    later = harness.value("SELECT mailgres.now()") + LONG
    harness.enqueue(scheduled_for=later)
    store = Store(harness.url, worker="here")
    connection = connect(autocommit=False)

    def written() -> bool:
        (xact,) = connection.execute(WRITTEN).fetchone() or (None,)
        connection.commit()
        return xact is not None

    try:
        store.mark_asleep(connection, LONG)
        assert written(), "it registers"
        store.mark_asleep(connection, LONG)
        assert not written(), "it is registered"
        assert store.claim(10, LEASE, ["capture"], connection) == []
        assert not written(), "there is nothing to claim"
        store.mark_asleep(connection, 3 * LONG)
        assert written(), "the registration is renewed in time"
        harness.enqueue()
        assert len(store.claim(10, LEASE, ["capture"], connection)) == 1
        assert written(), "a claim is kept"
    finally:
        store.close()


def test_leases_of_several_claims_are_extended_in_one_statement(harness: WorkerHarness) -> None:
    """Each email counts with its own token: one whose lease was lost is no longer held."""
    harness.use_double(idempotent=False)
    harness.fill(4)
    store = Store(harness.url, worker="here")
    try:
        first = store.claim(2, LEASE, ["double"])
        second = store.claim(2, LEASE, ["double"])
        assert len({email.lease_token for email in (*first, *second)}) == 2
        lost = second[1]
        harness.run("UPDATE email_queue SET lease_token = gen_random_uuid() WHERE id = %s", lost.id)
        ours = {email.claim for email in (*first, *second)} - {lost.claim}
        assert store.extend([*first, *second], LONG) == ours
        assert store.start_attempts([*first, *second]).allowed == ours
        assert store.give_back([*first, *second]) == ours
        assert store.give_back([]) == set()
    finally:
        store.close()
    assert harness.statuses() == {"pending": 3, "sending": 1}


def test_a_statement_beyond_the_timeout_is_cancelled(harness: WorkerHarness) -> None:
    store = Store(harness.url, worker="here", statement_timeout=SHORT)
    try:
        with store.connection() as connection, pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(60)")
    finally:
        store.close()
