"""`mailgres worker` keeps house while it works: all its janitors run, by themselves."""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor import JANITORS
from mailgres.testing import travel
from worker.harness import Process, WorkerHarness, until

HOUR = timedelta(hours=1)


def has_run(worker: Process, action: str) -> bool:
    assert worker.alive(), worker.log
    return f"{action} handled" in worker.log


def test_a_worker_runs_the_janitors(harness: WorkerHarness) -> None:
    """Each of them at once; and what was due, waiting or expired when it started is settled."""
    now = harness.value("SELECT mailgres.now()")
    waiting = harness.enqueue(scheduled_for=now + HOUR)
    expired = harness.enqueue(scheduled_for=now + HOUR, expires_at=now + 2 * HOUR)
    later = harness.enqueue(scheduled_for=now + 9 * HOUR)
    harness.run("INSERT INTO mailgres.sleepers VALUES ('gone', now() - interval '2 hours')")
    travel(harness.conn, 3 * HOUR)
    with harness.script("worker", "--worker-name", "harness", "--log-level", "debug") as worker:
        for janitor in JANITORS.values():
            until(lambda: has_run(worker, janitor.action), janitor.name)  # noqa: B023
        until(lambda: harness.status_of(waiting) == "sent", "what was waiting is sent")
        until(lambda: harness.status_of(expired) == "failed", "what had expired is dead")
        assert harness.status_of(later) == "pending"
        assert harness.rows("SELECT worker FROM mailgres.workers") == [("harness",)]
        gone = "SELECT count(*) FROM mailgres.sleepers WHERE worker = 'gone'"
        until(lambda: harness.value(gone) == 0, "a sleeper that died is forgotten")
        assert worker.stop()["sent"] == 1
    assert harness.email(expired).dead_reason == "expired"
    assert "Traceback" not in worker.log
