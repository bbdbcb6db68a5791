"""What the fairness view shows: who waits, for how many rounds, and how urgent that makes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.queue import Clock, Queue, report


def tenant(queue: Queue, tenant_id: str) -> Any:
    return queue.row("SELECT * FROM email_tenant_fairness WHERE tenant_id = %s", tenant_id)


def serve(queue: Queue, limit: int = 10) -> None:
    queue.finish(*(report(email, "sent") for email in queue.claim(limit=limit)))


@pytest.mark.parametrize(
    ("rounds", "priority"), [(-1, 5), (0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (5, 1), (10**12, 1)]
)
def test_round_robin_priority_rises_from_five_to_one(
    queue: Queue, rounds: int, priority: int
) -> None:
    assert queue.value("SELECT mailgres.round_robin_priority(%s)", rounds) == priority


def test_the_fairness_view_shows_when_a_tenant_was_served(queue: Queue, clock: Clock) -> None:
    for _ in range(5):
        queue.enqueue(tenant_id="a")
        queue.enqueue(tenant_id="b")
    serve(queue, 6)
    for folded in (False, True):
        if folded:
            queue.run("SELECT mailgres.fold_rollups()")
        found = tenant(queue, "a")
        assert (found.last_processed_at, found.total_processed) == (clock.now, 3)
        assert (found.consecutive_batch, found.backlog, found.due) == (3, 2, 2)
        assert (found.rounds_without_processing, found.current_priority) == (0, 5)
        assert (found.weight, found.paused) == (1, False)


def test_the_fairness_view_counts_the_rounds_a_tenant_waits(queue: Queue, clock: Clock) -> None:
    """Its rounds are counted from when it was seen to wait, or was served."""
    queue.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('b', mailgres.now())")
    for _ in range(30):
        queue.enqueue(tenant_id="a")
    queue.enqueue(tenant_id="b")
    queue.run("SELECT mailgres.measure_depth('0')")
    for rounds in range(7):
        found = tenant(queue, "b")
        assert found.rounds_without_processing == rounds
        assert found.current_priority == max(5 - rounds, 1)
        assert found.paused
        serve(queue, 1)
        clock.forward(timedelta(seconds=50))
        assert queue.value("SELECT mailgres.measure_depth()") == 1
        assert tenant(queue, "a").rounds_without_processing == 0
    queue.run("UPDATE mailgres.tenants SET paused_at = NULL")
    serve(queue, 10)
    assert tenant(queue, "b").rounds_without_processing == 0


def test_a_tenant_without_due_emails_waits_for_no_round(queue: Queue, clock: Clock) -> None:
    queue.enqueue(tenant_id="a")
    serve(queue)
    queue.claim()
    queue.enqueue(tenant_id="a", scheduled_for=clock.now.replace(year=2100))
    found = tenant(queue, "a")
    assert (found.backlog, found.due, found.rounds_without_processing) == (1, 0, 0)
