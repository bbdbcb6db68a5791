"""`mailgres worker` keeps house while it works: all its janitors run, by themselves."""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor import JANITORS
from mailgres.testing import travel
from worker.bench import Bench, Process, until

HOUR = timedelta(hours=1)


def has_run(worker: Process, action: str) -> bool:
    assert worker.alive(), worker.log
    return f"{action} handled" in worker.log


def test_they_run(bench: Bench) -> None:
    """Each of them at once; and what was due, waiting or expired when it started is settled."""
    now = bench.value("SELECT mailgres.now()")
    waiting = bench.enqueue(scheduled_for=now + HOUR)
    expired = bench.enqueue(scheduled_for=now + HOUR, expires_at=now + 2 * HOUR)
    later = bench.enqueue(scheduled_for=now + 9 * HOUR)
    bench.run("INSERT INTO mailgres.sleepers VALUES ('gone', now() - interval '2 hours')")
    travel(bench.conn, 3 * HOUR)
    with bench.script("worker", "--worker-name", "house", "--log-level", "debug") as worker:
        for janitor in JANITORS.values():
            until(lambda: has_run(worker, janitor.action), janitor.name)  # noqa: B023
        until(lambda: bench.status_of(waiting) == "sent", "what was waiting is sent")
        until(lambda: bench.status_of(expired) == "failed", "what had expired is dead")
        assert bench.status_of(later) == "pending"
        assert bench.rows("SELECT worker FROM mailgres.workers") == [("house",)]
        gone = "SELECT count(*) FROM mailgres.sleepers WHERE worker = 'gone'"
        until(lambda: bench.value(gone) == 0, "a sleeper that died is forgotten")
        assert worker.stop()["sent"] == 1
    assert bench.email(expired).dead_reason == "expired"
    assert "Traceback" not in worker.log
