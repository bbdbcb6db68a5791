"""The database goes away and comes back: nothing is lost, nothing is sent twice.

The provider takes no keys in these tests: whatever is sent twice, it has twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from mailgres.errors import DatabaseUnreachable
from support.postgres import Connect
from support.queue import RESEND
from worker.double import Double
from worker.harness import BLOCKED_CALLS, DEADLINE, WorkerHarness, until
from worker.restartable import RestartableHarness

PATIENT = 3600.0
"""Seconds that a worker would wait for a connection if it had the time."""
CONNECTIONS = 4
"""Of the pool of a worker."""
TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

TERMINATE_READERS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l
    WHERE NOT l.granted AND l.relation = 'mailgres.template_versions'::regclass
"""


@pytest.fixture
def restartable(migrations: Path, tmp_path: Path) -> Iterator[RestartableHarness]:
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        restartable = RestartableHarness(Path(directory), tmp_path, migrations)
        yield restartable
        if restartable.listens():
            restartable.switch_off()


@pytest.mark.slow
def test_a_worker_survives_restarts_of_the_database(restartable: RestartableHarness) -> None:
    restartable.use_double(idempotent=False)
    emails = restartable.fill(80, RESEND)
    slow = {"idempotent": False, "delay": 0.5}
    with restartable.worker(lease=120.0, concurrency=8, timeout=0.2, double=slow) as worker:
        until(lambda: restartable.ledger.accepted().total() >= 16, "it works")
        before = restartable.ledger.accepted().total()
        restartable.switch_off()
        # Calls that were under way end while the database is away; their outcomes wait in memory.
        until(lambda: restartable.under_way() == 0, "the calls have ended")
        # More often than there were connections to lose: by now it is the pool that has none.
        waits = "outcomes wait for the database"
        until(lambda: worker.log.count(waits) > CONNECTIONS, "outcomes wait")
        assert worker.alive()
        known = restartable.ledger.accepted()
        assert known.total() > before
        restartable.switch_on()
        written = "SELECT count(*) FROM email_queue WHERE status = 'sent' AND id = ANY(%s::uuid[])"
        until(lambda: restartable.value(written, list(known)) == len(known), "they are written")
        restartable.until_settled()
        reported = worker.stop()
    assert restartable.ledger.accepted() == dict.fromkeys(emails, 1)
    assert restartable.statuses() == {"sent": 80}
    assert reported["lost"] == 0


@pytest.mark.slow
def test_an_outage_costs_captured_emails_no_retry(restartable: RestartableHarness) -> None:
    """The captured inbox is in the same database: an outage costs its emails nothing."""
    lock = psycopg.connect(restartable.url)
    lock.execute("LOCK TABLE mailgres.captured")
    with restartable.script("worker") as worker:
        email = restartable.enqueue()
        until(lambda: restartable.value(BLOCKED_CALLS), "a call is under way")
        restartable.switch_off()
        lock.close()
        until(lambda: "DatabaseLost" in worker.log, "it has noticed")
        restartable.switch_on()
        until(lambda: restartable.status_of(email) == "sent", "it is sent")
        worker.stop()
    assert restartable.email(email).retries == 0
    assert restartable.value("SELECT count(*) FROM mailgres.captured") == 1
    assert "retry" not in restartable.events(email)


@pytest.mark.slow
def test_a_worker_stopped_during_an_outage_says_which_outcomes_are_unwritten(
    restartable: RestartableHarness,
) -> None:
    """It does not wait forever, and says which outcomes the database does not have."""
    restartable.use_double()
    emails = restartable.fill(60)
    slow = {"delay": 0.5}
    with restartable.worker(grace=1.0, timeout=PATIENT, double=slow) as worker:
        until(lambda: restartable.ledger.accepted().total() >= 8, "it works")
        restartable.switch_off()
        until(lambda: restartable.under_way() == 0, "the calls have ended")
        worker.popen.terminate()
        assert worker.popen.wait(DEADLINE) == 1
    error = worker.log.splitlines()[-1]
    assert error.startswith("Error: The database was away when the worker ended: ")
    assert "outcomes not written" in error
    restartable.switch_on()
    known = restartable.ledger.accepted()
    written = restartable.value("SELECT count(*) FROM email_queue WHERE status = 'sent'")
    assert written < known.total()
    restartable.work_off()
    assert restartable.ledger.accepted() == dict.fromkeys(emails, 1)
    assert restartable.statuses() == {"sent": 60}


@pytest.mark.slow
def test_emails_that_a_stopped_worker_could_not_give_back_are_reaped(
    restartable: RestartableHarness,
) -> None:
    """They are pending again when their lease expires, since the database was away."""
    restartable.use_double(idempotent=False)
    emails = restartable.fill(5, RESEND)
    stuck = {"idempotent": False, "hang": "inside"}
    with restartable.worker(grace=1.0, timeout=PATIENT, concurrency=1, double=stuck) as worker:
        until(lambda: restartable.ledger.entries("inside"), "a call is under way")
        restartable.switch_off()
        worker.popen.terminate()
        assert worker.popen.wait(DEADLINE) == 1
    assert worker.log.rstrip().endswith("when the worker ended: 4 emails not given back")
    restartable.switch_on()
    restartable.work_off(double={"idempotent": False})
    assert restartable.ledger.accepted() == dict.fromkeys(emails, 1)


@pytest.mark.slow
def test_a_worker_without_emails_stops_cleanly_during_an_outage(
    restartable: RestartableHarness,
) -> None:
    """It ends with success, although its janitors wait for the database, too."""
    with restartable.script("worker", "--grace", "1s") as worker:
        until(lambda: restartable.value("SELECT count(*) FROM mailgres.sleepers"), "it sleeps")
        restartable.switch_off()
        until(lambda: "the database is away" in worker.log, "it notices")
        assert worker.stop()["claimed"] == 0
    assert "Traceback" not in worker.log


@pytest.mark.slow
def test_a_run_of_cron_gives_up(restartable: RestartableHarness) -> None:
    """It reports the outage, instead of calling the queue empty."""
    restartable.use_double()
    restartable.fill(1)
    with restartable.here(Double(restartable.ledger), timeout=1.0) as worker:
        restartable.switch_off()
        with pytest.raises(DatabaseUnreachable):
            worker.drain()
    assert not restartable.ledger.accepted()


def test_a_worker_survives_killed_connections(harness: WorkerHarness) -> None:
    """Every connection of the worker is killed, again and again."""
    harness.use_double(idempotent=False)
    emails = harness.fill(200, RESEND, tenants=3)
    double = {"idempotent": False, "delay": 0.02}
    cut = 0
    with harness.worker(lease=10.0, double=double) as worker:
        for n in range(1, 6):
            until(lambda: harness.ledger.accepted().total() >= 25 * n, "it works")  # noqa: B023
            cut += len(harness.rows(TERMINATE))
        harness.until_settled()
        worker.stop()
    assert cut >= 5
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.statuses() == {"sent": 200}


def test_a_connection_that_is_cut_while_a_template_is_read_harms_no_email(
    harness: WorkerHarness, connect: Connect
) -> None:
    """The email is not at fault: it goes back to the queue and is sent later."""
    harness.use_double()
    emails = harness.fill(3)
    other = connect(autocommit=False)
    other.execute("LOCK TABLE mailgres.template_versions IN ACCESS EXCLUSIVE MODE")
    with harness.worker() as worker:
        until(lambda: harness.rows(TERMINATE_READERS), "a template is read, and the connection cut")
        other.rollback()
        harness.until_settled()
        worker.stop()
    assert harness.statuses() == {"sent": 3}
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)


def test_a_sleeping_worker_reconnects_and_listens_again(harness: WorkerHarness) -> None:
    """It connects again and listens again, without waiting for the next poll."""
    harness.use_double()
    with harness.worker(poll=3600.0):
        until(lambda: harness.value("SELECT count(*) FROM mailgres.sleepers") == 1, "it sleeps")
        assert harness.rows(TERMINATE)
        harness.enqueue()
        until(harness.ledger.accepted, "it is sent")
