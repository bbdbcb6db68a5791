"""A session changed an email and left its transaction open: the worker goes on with the others.

The connection that stays "idle in transaction" over night is nobody's intention, and happens.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from mailgres.model import Message, Result
from support.postgres import Connect
from worker.double import Double, Ledger
from worker.harness import DEADLINE, WorkerHarness, until
from worker.test_wake import ASLEEP, RARELY

BRIEFLY = timedelta(seconds=1)
COUNT = 10


class Gate(Double):
    """Answers when the test lets it."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger, idempotent=False, batch_size=COUNT)
        self.opens = threading.Event()

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        results = super().send(messages)
        assert self.opens.wait(DEADLINE)
        return results


@pytest.mark.parametrize(
    ("end", "reported"), [("ROLLBACK", {"sent": 11}), ("COMMIT", {"sent": 10, "lost": 1})]
)
def test_a_locked_row_delays_no_other_outcome(
    harness: WorkerHarness, connect: Connect, end: str, reported: dict[str, int]
) -> None:
    """Emails of its call and later ones are sent; its own when the transaction ends."""
    harness.use_double(idempotent=False, batch_size=COUNT)
    emails = harness.fill(COUNT)
    gate = Gate(harness.ledger)
    with harness.running(gate, statement_timeout=BRIEFLY) as worker:
        until(lambda: harness.ledger.accepted().total() == COUNT, "all are with the provider")
        slow = connect(autocommit=False)
        slow.execute("SELECT mark_email_sent(%s, 're_1')", [sorted(emails)[3]])
        gate.opens.set()
        until(
            lambda: harness.statuses() == {"sent": COUNT - 1, "sending": 1}, "the others are sent"
        )
        later = harness.enqueue()
        until(lambda: harness.status_of(later) == "sent", "what comes later is sent")
        until(lambda: worker.finisher.unwritten == 1, "only the outcome of the locked row is left")
        slow.execute(end)
        until(lambda: not len(worker.held), "it has let go of all")
    assert harness.statuses() == {"sent": COUNT + 1}
    assert worker.finisher.counts == reported
    assert harness.ledger.accepted() == dict.fromkeys([*emails, str(later)], 1)


def test_an_idle_worker_does_not_spin(harness: WorkerHarness, connect: Connect) -> None:
    """A due retry whose row is locked is claimed when the lock is released."""
    harness.use_double()
    email = harness.enqueue(scheduled_for=datetime.now(UTC) + timedelta(hours=1))
    harness.run("UPDATE email_queue SET scheduled_for = now(), next_retry_at = now()")
    slow = connect(autocommit=False)
    slow.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", [email])
    with harness.running(Double(harness.ledger), poll=RARELY) as worker:
        until(lambda: harness.value(ASLEEP) == 1, "it sleeps")
        slow.rollback()
        harness.enqueue()
        until(lambda: harness.statuses() == {"sent": 2}, "both are sent")
        until(lambda: worker.finisher.counts == {"sent": 2}, "it knows so")
