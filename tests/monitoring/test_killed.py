"""A worker is killed in the middle: what it did is counted once, what it did not is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from monitoring.answers import assert_views_are_right, remember
from support.queue import RESEND
from worker.conftest import harness
from worker.harness import WorkerHarness, until

__all__ = ["harness"]


OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> ALL (%s)
"""


@pytest.fixture
def watched(harness: WorkerHarness) -> Iterator[WorkerHarness]:
    """A queue whose depth is counted by its readers."""
    remember(harness)
    yield harness
    until(lambda: harness.value("SELECT mailgres.fold_rollups()") == 0, "everything is folded")
    assert_views_are_right(harness)


@pytest.mark.slow
def test_views_are_right_after_workers_were_killed(watched: WorkerHarness) -> None:
    watched.use_double(batch_size=3)
    emails = watched.fill(90, RESEND, tenants=5)
    double = {"batch_size": 3, "delay": 0.02}
    ours = [row.pid for row in watched.rows("SELECT pid FROM pg_stat_activity")]
    for number in range(3):
        before = watched.ledger.accepted().total()
        bounded = {**double, "hang_after": 15}  # so that it cannot be done before it is killed
        with watched.worker(name=f"victim-{number}", double=bounded) as victim:
            until(lambda: watched.ledger.accepted().total() >= before + 12, "it works")  # noqa: B023
            victim.kill()
    # What it asked for before it was killed, the server does.
    until(lambda: watched.value(OTHERS, ours) == 0, "the server has seen that they are dead")
    watched.run("DELETE FROM mailgres.depth")  # a dead worker's count is old, and so is this
    assert_views_are_right(watched)
    watched.work_off(double=double)
    watched.run("DELETE FROM mailgres.depth")
    sent = watched.row("SELECT * FROM email_queue_state WHERE status = 'sent'")
    assert sent.emails == len(emails)
