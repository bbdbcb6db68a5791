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
from support.queue import RESEND
from worker.bench import BLOCKED_CALLS, DEADLINE, Bench, until
from worker.double import Double
from worker.plant import Plant

PATIENT = 3600.0
"""Seconds that a worker would wait for a connection if it had the time."""
CONNECTIONS = 4
"""Of the pool of a worker."""
TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def plant(migrations: Path, tmp_path: Path) -> Iterator[Plant]:
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        plant = Plant(Path(directory), tmp_path, migrations)
        yield plant
        if plant.listens():
            plant.switch_off()


@pytest.mark.slow
def test_switched_off_and_on(plant: Plant) -> None:
    plant.use_double(idempotent=False)
    emails = plant.fill(80, RESEND)
    slow = {"idempotent": False, "delay": 0.5}
    with plant.worker(lease=20.0, concurrency=8, patience=0.2, double=slow) as worker:
        until(lambda: plant.ledger.accepted().total() >= 16, "it works")
        before = plant.ledger.accepted().total()
        plant.switch_off()
        # Calls that were under way end while the database is away; their outcomes wait in memory.
        until(lambda: plant.under_way() == 0, "the calls have ended")
        # More often than there were connections to lose: by now it is the pool that has none.
        waits = "outcomes wait for the database"
        until(lambda: worker.log.count(waits) > CONNECTIONS, "outcomes wait")
        assert worker.alive()
        known = plant.ledger.accepted()
        assert known.total() > before
        plant.switch_on()
        written = "SELECT count(*) FROM email_queue WHERE status = 'sent' AND id = ANY(%s::uuid[])"
        until(lambda: plant.value(written, list(known)) == len(known), "they are written")
        plant.until_settled()
        told = worker.stop()
    assert plant.ledger.accepted() == dict.fromkeys(emails, 1)
    assert plant.statuses() == {"sent": 80}
    assert told["lost"] == 0


@pytest.mark.slow
def test_the_inbox_is_away(plant: Plant) -> None:
    """The captured inbox is in the same database: an outage costs its emails nothing."""
    lock = psycopg.connect(plant.url)
    lock.execute("LOCK TABLE mailgres.captured")
    with plant.script("worker") as worker:
        email = plant.enqueue()
        until(lambda: plant.value(BLOCKED_CALLS), "a call is under way")
        plant.switch_off()
        lock.close()
        until(lambda: "DatabaseLost" in worker.log, "it has noticed")
        plant.switch_on()
        until(lambda: plant.status_of(email) == "sent", "it is sent")
        worker.stop()
    assert plant.email(email).retries == 0
    assert plant.value("SELECT count(*) FROM mailgres.captured") == 1
    assert "retry" not in plant.events(email)


@pytest.mark.slow
def test_told_to_stop_while_outcomes_wait(plant: Plant) -> None:
    """It does not wait for ever, and says what the database does not know yet."""
    plant.use_double()
    emails = plant.fill(20)
    slow = {"delay": 0.5}
    with plant.worker(lease=2.0, grace=1.0, patience=PATIENT, double=slow) as worker:
        until(lambda: plant.ledger.accepted().total() >= 8, "it works")
        plant.switch_off()
        until(lambda: plant.under_way() == 0, "the calls have ended")
        worker.popen.terminate()
        assert worker.popen.wait(DEADLINE) == 1
    error = worker.log.splitlines()[-1]
    assert error.startswith("Error: The database was away when the worker ended: ")
    assert "outcomes not written" in error
    plant.switch_on()
    known = plant.ledger.accepted()
    written = plant.value("SELECT count(*) FROM email_queue WHERE status = 'sent'")
    assert written < known.total()
    plant.work_off()
    assert plant.ledger.accepted() == dict.fromkeys(emails, 1)
    assert plant.statuses() == {"sent": 20}


@pytest.mark.slow
def test_told_to_stop_with_emails_to_give_back(plant: Plant) -> None:
    """They come back when their lease ends, since nobody could be told."""
    plant.use_double(idempotent=False)
    emails = plant.fill(5, RESEND)
    stuck = {"idempotent": False, "hang": "inside"}
    with plant.worker(
        lease=2.0, grace=1.0, patience=PATIENT, concurrency=1, double=stuck
    ) as worker:
        until(lambda: plant.ledger.entries("inside"), "a call is under way")
        plant.switch_off()
        worker.popen.terminate()
        assert worker.popen.wait(DEADLINE) == 1
    assert worker.log.rstrip().endswith("when the worker ended: 4 emails not given back")
    plant.switch_on()
    plant.work_off(double={"idempotent": False})
    assert plant.ledger.accepted() == dict.fromkeys(emails, 1)


@pytest.mark.slow
def test_told_to_stop_with_nothing_to_do(plant: Plant) -> None:
    """Then it ends well, though its janitors wait for the database as well."""
    with plant.script("worker", "--grace", "1s") as worker:
        until(lambda: plant.value("SELECT count(*) FROM mailgres.sleepers"), "it sleeps")
        plant.switch_off()
        until(lambda: "the database is away" in worker.log, "it notices")
        assert worker.stop()["claimed"] == 0
    assert "Traceback" not in worker.log


@pytest.mark.slow
def test_a_run_of_cron_gives_up(plant: Plant) -> None:
    """It tells of it, instead of calling the queue empty."""
    plant.use_double()
    plant.fill(1)
    with plant.here(Double(plant.ledger)) as worker:
        plant.switch_off()
        with pytest.raises(DatabaseUnreachable):
            worker.drain()
    assert not plant.ledger.accepted()


def test_connections_are_cut(bench: Bench) -> None:
    """Every connection of the worker is killed, again and again."""
    bench.use_double(idempotent=False)
    emails = bench.fill(200, RESEND, tenants=3)
    double = {"idempotent": False, "delay": 0.02}
    cut = 0
    with bench.worker(lease=2.0, double=double) as worker:
        for n in range(1, 6):
            until(lambda: bench.ledger.accepted().total() >= 25 * n, "it works")  # noqa: B023
            cut += len(bench.rows(TERMINATE))
        bench.until_settled()
        worker.stop()
    assert cut >= 5
    assert bench.ledger.accepted() == dict.fromkeys(emails, 1)
    assert bench.statuses() == {"sent": 200}


def test_cut_while_it_sleeps(bench: Bench) -> None:
    """It connects again and listens again, without waiting for the next poll."""
    bench.use_double()
    with bench.worker(poll=60.0):
        until(lambda: bench.value("SELECT count(*) FROM mailgres.sleepers") == 1, "it sleeps")
        assert bench.rows(TERMINATE)
        bench.enqueue()
        until(bench.ledger.accepted, "it is sent", 20)
