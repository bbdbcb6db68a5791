"""Leases: kept while work takes long, and nothing is overwritten once one is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from mailgres.model import Message, Result
from support.queue import RESEND
from worker.double import NAME, Double
from worker.harness import DEADLINE, WorkerHarness, until

STEAL = """
    UPDATE email_queue
    SET lease_token = gen_random_uuid(), lease_worker = 'thief',
        lease_until = now() + interval '1 hour'
"""


LEASE_SECONDS = 4.0
"""Long enough for a keeper on a busy machine, which extends it after a third."""


def test_a_slow_call_keeps_its_lease(harness: WorkerHarness, tmp_path: Path) -> None:
    """It takes longer than its first lease: no other worker gets it, although all claim."""
    harness.use_double(idempotent=False)
    emails = harness.fill(2, RESEND)
    gate = tmp_path / "gate"
    slow = {"idempotent": False, "gate": str(gate)}
    with harness.worker(name="slow", lease=LEASE_SECONDS, double=slow) as worker:
        until(lambda: len(harness.ledger.entries("inside")) == 2, "the calls are under way")
        ends = harness.value("SELECT max(lease_until) FROM email_queue")
        with harness.worker(name="eager", double={"idempotent": False}) as eager:
            up = "SELECT count(*) FROM mailgres.sleepers WHERE worker = 'eager'"
            until(lambda: harness.value(up), "it finds nothing")
            over = "SELECT mailgres.now() > %s::timestamptz + interval '1 second'"
            until(lambda: harness.reap() or harness.value(over, ends), "the first lease is over")
            gate.touch()
            harness.until_settled()
            assert eager.stop()["claimed"] == 0
        assert worker.stop()["sent"] == 2
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.value("SELECT max(lease_losses) FROM email_queue") == 0


def test_emails_that_wait_in_a_worker_keep_their_lease(harness: WorkerHarness) -> None:
    """Not only the one in the call: also those that this worker holds for later."""
    harness.use_double()
    emails = harness.fill(4)
    slow = {"delay": LEASE_SECONDS / 3}
    with harness.worker(concurrency=1, lease=LEASE_SECONDS, double=slow) as worker:
        harness.until_settled()
        assert worker.stop()["claimed"] == 4
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.value("SELECT max(lease_losses) FROM email_queue") == 0


def test_each_call_gets_one_full_lease(harness: WorkerHarness) -> None:
    """However often it was extended: otherwise a dead worker would go unnoticed for as long."""
    harness.use_double(idempotent=False)
    harness.fill(1, RESEND)
    minute = timedelta(minutes=1)
    with harness.here(Double(harness.ledger, idempotent=False)) as worker:
        emails = worker.store.claim(1, minute, [NAME])
        harness.run("UPDATE email_queue SET leased_at = leased_at - interval '1 hour'")
        assert worker.store.start_attempts(emails, minute).allowed == {emails[0].claim}
    assert harness.value("SELECT lease_until - attempt_started_at FROM email_queue") == minute


@dataclass
class Gate(Double):
    """Calls wait until the test opens it."""

    opened: threading.Event = field(default_factory=threading.Event)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        self.ledger.note("waiting", ids=[str(message.email.id) for message in messages])
        assert self.opened.wait(DEADLINE)
        return super().send(messages)


def test_an_outcome_after_a_lost_lease_is_refused_and_logged(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The result comes too late: it is refused and logged, and the row stays as it is."""
    harness.use_double()
    email = harness.enqueue()
    gate = Gate(harness.ledger)
    with caplog.at_level(logging.WARNING), harness.running(gate) as worker:
        until(lambda: harness.ledger.entries("waiting"), "the call is under way")
        harness.run(STEAL)
        stolen = harness.email(email)
        gate.opened.set()
        until(lambda: worker.finisher.counts["lost"], "the result is refused")
        until(lambda: len(worker.held) == 0, "it is let go")
    assert harness.email(email) == stolen
    (record,) = [one for one in caplog.records if "lease lost" in one.message]
    assert (record.__dict__["jobId"], record.__dict__["sqlstate"]) == (str(email), "MG030")


def test_a_late_outcome_of_a_lost_lease_keeps_the_new_one(harness: WorkerHarness) -> None:
    """A late result of the first lease does not let go of the second."""
    harness.use_double()
    email = harness.enqueue()
    gate = Gate(harness.ledger)
    with harness.running(gate, concurrency=2, lease=timedelta(seconds=9)) as worker:
        until(lambda: harness.ledger.entries("waiting"), "the call is under way")
        harness.run("UPDATE email_queue SET lease_until = now() - interval '1 s'")
        harness.reap()  # unless a claim of the worker was faster
        until(lambda: len(harness.ledger.entries("waiting")) == 2, "it is claimed again")
        assert len(worker.held) == 1, "the keeper let go of the first lease"
        gate.opened.set()
        until(lambda: harness.status_of(email) == "sent", "it is sent")
        until(lambda: len(worker.held) == 0, "the second is let go")
    assert worker.finisher.counts == {"sent": 1, "lost": 1}
    assert harness.ledger.accepted() == {str(email): 1}


def test_nothing_else_is_on_board_while_an_email_of_a_dead_worker_is_sent(
    harness: WorkerHarness,
) -> None:
    harness.use_double()
    emails = harness.fill(30, RESEND, tenants=3)
    lost = set(sorted(emails)[5:8])
    harness.run("UPDATE email_queue SET lease_losses = 1 WHERE id = ANY (%s::uuid[])", list(lost))
    with harness.running(Double(harness.ledger, delay=0.02), concurrency=4):
        harness.until_settled()
    under_way: set[str] = set()
    most = 0
    with harness.ledger.alone() as entries:
        calls = [entry for entry in entries if entry["event"] in ("inside", "left")]
    for call in calls:
        under_way ^= set(call["ids"])
        most = max(most, len(under_way))
        assert not under_way & lost or len(under_way) == 1
    assert most > 1, "the others are sent side by side"
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
