"""Everybody at once: workers, a run of cron's, and a processor that knows no token."""

from __future__ import annotations

import psycopg

from support.postgres import Connect
from support.queue import Queue
from worker.bench import Bench
from worker.double import Ledger

EMAILS = 300
TENANTS = 50


def fill(bench: Bench) -> set[str]:
    """Many tenants; half of all emails are of one."""
    with bench.conn.transaction():
        return {
            str(
                bench.enqueue(tenant_id=f"tenant-{n % TENANTS if n % 2 else 0}", priority=1 + n % 9)
            )
            for n in range(EMAILS)
        }


def process_as_ever(conn: psycopg.Connection, ledger: Ledger) -> int:
    """What a processor of the old kind does, until there is nothing: claim, send, mark."""
    queue = Queue(conn)
    done = 0
    while claimed := queue.claim_rpc(3):
        for email in claimed:
            ledger.note("accepted", id=str(email.queue_id), key=f"rpc/{email.queue_id}")
            assert queue.value("SELECT mark_email_sent(%s, %s)", email.queue_id, "id")
            done += 1
    return done


def test_each_email_goes_out_once(bench: Bench, connect: Connect) -> None:
    """The provider takes no keys: whatever is sent twice, it has twice."""
    bench.use_double(idempotent=False)
    emails = fill(bench)
    double = {"idempotent": False, "delay": 0.02}
    with (
        bench.worker(name="one", double=double) as one,
        bench.worker(name="two", double=double) as two,
        bench.worker(name="cron", double=double, drain=True) as cron,
    ):
        while not bench.ledger.accepted():
            assert one.alive()
        by_rpc = process_as_ever(connect(), bench.ledger)
        bench.until_settled()
        told = [cron.summary(), one.stop(), two.stop()]
    assert bench.ledger.accepted() == dict.fromkeys(emails, 1)
    assert bench.statuses() == {"sent": EMAILS}
    assert by_rpc > 0
    assert sum(run["sent"] for run in told) + by_rpc == EMAILS
    assert [run["lost"] for run in told] == [0, 0, 0]
    ends = "SELECT count(*) FROM email_logs WHERE to_status = 'sent'"
    assert bench.value(ends) == EMAILS
