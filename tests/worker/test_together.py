"""Everybody at once: workers, a run of cron's, and a processor that knows no token."""

from __future__ import annotations

from typing import Any

from support.postgres import Connect
from support.queue import Queue
from worker.double import Ledger
from worker.harness import WorkerHarness, until

EMAILS = 300
TENANTS = 50


def fill(harness: WorkerHarness) -> set[str]:
    """Many tenants; half of all emails are of one."""
    with harness.conn.transaction():
        return {
            str(
                harness.enqueue(
                    tenant_id=f"tenant-{n % TENANTS if n % 2 else 0}", priority=1 + n % 9
                )
            )
            for n in range(EMAILS)
        }


def process_as_ever(queue: Queue, claimed: list[Any], ledger: Ledger) -> int:
    """Return what a processor of the old kind does, until there is nothing: claim, send, mark."""
    done = 0
    while claimed:
        for email in claimed:
            ledger.note("accepted", id=str(email.queue_id), key=f"rpc/{email.queue_id}")
            assert queue.value("SELECT mark_email_sent(%s, %s)", email.queue_id, "id")
            done += 1
        claimed = queue.claim_rpc(3)
    return done


def test_several_workers_send_each_email_once(harness: WorkerHarness, connect: Connect) -> None:
    """The provider takes no keys: whatever is sent twice, it has twice."""
    harness.use_double(idempotent=False)
    emails = fill(harness)
    double = {"idempotent": False, "delay": 0.02}
    processor = Queue(connect())
    claimed = processor.claim_rpc(3)  # before the workers can have claimed everything
    with (
        harness.worker(name="one", double=double) as one,
        harness.worker(name="two", double=double) as two,
        harness.worker(name="cron", double=double, drain=True) as cron,
    ):
        until(lambda: harness.ledger.accepted() or not one.alive(), "a worker sends")
        by_rpc = process_as_ever(processor, claimed, harness.ledger)
        harness.until_settled()
        reported = [cron.summary(), one.stop(), two.stop()]
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.statuses() == {"sent": EMAILS}
    assert by_rpc >= 3
    assert sum(run["sent"] for run in reported) + by_rpc == EMAILS
    assert [run["lost"] for run in reported] == [0, 0, 0]
    ends = "SELECT count(*) FROM email_logs WHERE to_status = 'sent'"
    assert harness.value(ends) == EMAILS
