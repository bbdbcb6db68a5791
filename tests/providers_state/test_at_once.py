"""Many workers at the same moment, each with a connection of its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from providers_state.harness import DAY, MINUTE, SECOND, ProviderHarness, batches
from support.concurrency import at_once, wait_until_blocked
from support.postgres import Connect
from support.queue import Clock, report

WORKERS = 6


@pytest.fixture
def workers(connect: Connect) -> list[ProviderHarness]:
    """Workers that do not wait long for a lock."""
    stages = [ProviderHarness(connect()) for _ in range(WORKERS)]
    for harness in stages:
        harness.run("SET lock_timeout = '20s'")
    return stages


@pytest.fixture
def frozen(committed: ProviderHarness) -> Clock:
    """The clock of that database, stopped."""
    return Clock(committed.conn)


def claims(workers: list[ProviderHarness], limit: int) -> list[list[Any]]:
    """Let all claim at once."""
    return at_once(
        [partial(worker.claim, f"worker-{at}", limit) for at, worker in enumerate(workers)]
    )


def together(results: list[list[Any]]) -> list[Any]:
    return [email for claimed in results for email in claimed]


def test_one_probe_at_a_time_runs_across_all_workers(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.put(50)
    committed.open_circuit()
    for _ in range(8):
        frozen.set(committed.provider().circuit_until)
        probes = together(claims(workers, 10))
        assert len(probes) == 1
        assert committed.circuit() == "half_open"
        committed.report_outcomes(probes, "transient", account=True)
    frozen.set(committed.provider().circuit_until)
    committed.report_outcomes(together(claims(workers, 10)), "sent")
    assert len(together(claims(workers, 5))) == 5 * WORKERS


def test_the_rate_holds_across_workers(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.put(500)
    committed.run("SELECT mailgres.limit_provider('first', 7, NULL, NULL)")
    for _ in range(6):
        assert len(together(claims(workers, 4))) == 7
        frozen.forward(SECOND)


def test_the_rate_holds_in_real_time(
    committed: ProviderHarness, workers: list[ProviderHarness]
) -> None:
    """A claim that waits for the bucket is older than the one that it waits for."""
    rate = 200
    committed.put(3000)
    committed.run("SELECT mailgres.learn_limits('first', %s, NULL, NULL, NULL)", rate)
    begins = time.monotonic()
    claimed = sum(len(together(claims(workers, 20))) for _ in range(15))
    assert claimed <= rate + rate * (time.monotonic() - begins)


def test_concurrent_claims_do_not_refill_a_bucket_twice(
    committed: ProviderHarness, connect: Connect
) -> None:
    committed.put(50)
    committed.run("SELECT mailgres.limit_provider('first', 5, NULL, NULL)")
    old, new = connect(autocommit=False), connect()
    old.execute("SELECT")  # its time is now, whatever it waits for
    (began,) = old.execute("SELECT now()").fetchone() or ()
    assert len(ProviderHarness(new).claim(limit=2)) == 2
    assert len(ProviderHarness(old).claim(limit=1)) == 1
    old.commit()
    filled = committed.value("SELECT filled_at FROM mailgres.buckets WHERE name = 'emails:first'")
    assert filled > began


def test_the_quota_holds_across_workers(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.put(500)
    committed.run("SELECT mailgres.limit_provider('first', NULL, 25, NULL)")
    for _ in range(4):
        claimed = together([*claims(workers, 9), *claims(workers, 9)])
        assert len(claimed) == 25
        committed.report_outcomes(claimed, "sent")
        frozen.forward(DAY)


def test_the_limit_of_a_tenant_holds(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.put(200, tenant_id="loud")
    committed.put(200, tenant_id="calm")
    committed.run("SELECT mailgres.limit_tenant('loud', 4)")
    for _ in range(6):
        tenants = [email.tenant_id for email in together(claims(workers, 6))]
        assert tenants.count("loud") <= 4
        assert tenants.count("calm") >= 6
        frozen.forward(SECOND)


def test_claims_on_many_limited_routes_do_not_deadlock(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    names = [f"provider-{at}" for at in range(5)]
    for name in names:
        committed.add(name)
        committed.lead(name, route=name)
        committed.run("SELECT mailgres.limit_provider(%s, 50, 1000, NULL)", name)
    for _ in range(12):
        committed.put(3, route=names[2])
        assert len(together(claims(workers, 10))) == 3
        frozen.forward(SECOND)


def test_a_batch_is_never_split(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.add("batches", batch=20)
    committed.lead("batches")
    committed.put(120)
    calls = sorted(map(sorted, batches(committed.call("ambiguous", 120, batch_size=20))))
    assert len(calls) == 6
    for _ in range(5):
        frozen.forward(2 * MINUTE)
        seen: list[Any] = []
        for _ in range(12):
            for claimed in claims(workers, 10):
                assert {len(call) for call in batches(claimed)} <= {20}
                seen += claimed
            if len(seen) == 120:
                break
            frozen.forward(2 * SECOND)
        assert sorted(map(sorted, batches(seen))) == calls
        committed.report_outcomes(seen, "ambiguous", batch_size=20)


def test_a_batch_with_a_locked_row_is_claimed_later(
    committed: ProviderHarness, connect: Connect, frozen: Clock
) -> None:
    committed.add("batches", batch=20)
    committed.lead("batches")
    committed.put(10)
    first = committed.call("ambiguous", 10, batch_size=10)
    frozen.forward(MINUTE)
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (first[3].id,))
    assert committed.claim() == []
    assert committed.statuses() == {"pending": 10}
    holder.rollback()
    frozen.forward(2 * SECOND)
    assert {email.id for email in committed.claim(limit=1)} == {email.id for email in first}


def test_two_operators_may_retry_the_same_batch_at_once(
    committed: ProviderHarness, workers: list[ProviderHarness], frozen: Clock
) -> None:
    committed.add("batches", batch=20)
    committed.lead("batches")
    committed.put(20)
    first = sorted(email.id for email in committed.call("ambiguous", 20, batch_size=20))
    frozen.forward(MINUTE)
    for _ in range(10):
        retries = zip(workers, (first[0], first[-1], first[9]), strict=False)
        at_once([partial(worker.run, "SELECT retry_email(%s)", one) for worker, one in retries])
    assert len(committed.claim(limit=1)) == 20


def test_one_of_a_batch_that_comes_back_meanwhile_was_not_settled(
    committed: ProviderHarness, workers: list[ProviderHarness]
) -> None:
    """The first looks for the batch again and again while the second brings in the rest."""
    committed.add("batches", batch=2)
    committed.lead("batches")
    looker, teller = workers[:2]

    looker.run("SET session_replication_role = replica")  # no triggers: it looks more often

    def look(back: Any) -> list[Any]:
        query = "SELECT mailgres.complete_batches(%s) FROM generate_series(1, 200)"
        return looker.rows(query, [back.id])

    for _ in range(40):
        committed.put(2)
        back, away = committed.claim()
        committed.finish(report(back, "ambiguous", batch_size=2))
        at_once(
            [
                partial(look, back),
                partial(teller.report_outcomes, [away], "ambiguous", batch_size=2),
            ]
        )
        assert committed.statuses() == {"pending": 2}
        committed.run("DELETE FROM email_queue")


def test_a_batch_that_is_being_reported_is_not_reaped(
    committed: ProviderHarness, frozen: Clock, connect: Connect
) -> None:
    """Its lease has ended; taken back in part, it could never be repeated as it was."""
    committed.add("batches", batch=100)
    committed.lead("batches")
    committed.put(30)
    late = committed.claim(limit=30)
    frozen.forward(60 * MINUTE)
    with connect(autocommit=False) as telling:
        telling.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (late[3].id,))
        assert committed.value("SELECT mailgres.reap()") == 0
    assert committed.value("SELECT mailgres.reap()") == 30


RETRIES = {
    "retry_email": "SELECT retry_email(%s)",
    "reopen": "SELECT mailgres.reopen(ARRAY[%s], false)",
}


@pytest.mark.parametrize("how", RETRIES)
def test_an_event_may_settle_one_email_of_a_batch_while_another_is_retried(
    committed: ProviderHarness, workers: list[ProviderHarness], connect: Connect, how: str
) -> None:
    """The batch was whole when the retry began, and is not when the event is committed."""
    committed.add("batches", batch=20)
    committed.lead("batches")
    committed.put(3)
    one, settled, _ = committed.call("ambiguous", 3, batch_size=3)
    before = committed.email(one.id)
    retrier = workers[0]
    with connect(autocommit=False) as teller, ThreadPoolExecutor(1) as pool:
        teller.execute(
            "SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", (settled.id,)
        )
        retry = pool.submit(retrier.rows, RETRIES[how], one.id)
        wait_until_blocked(committed.conn, retrier.conn, retry)
        teller.commit()
        if how == "retry_email":
            with pytest.raises(psycopg.Error, match="may deliver it twice"):
                retry.result()
        else:
            assert retry.result() == [([],)]
    assert committed.email(one.id) == before


def test_a_batch_with_emails_of_a_tenant_whose_limit_another_claim_has_is_left_for_later(
    committed: ProviderHarness, connect: Connect, frozen: Clock
) -> None:
    """Otherwise two claims, each with the tenant of one batch, would wait for each other."""
    committed.add("batches", batch=20)
    committed.lead("batches")
    committed.put(2, tenant_id="a")
    committed.put(2, tenant_id="b")
    first = committed.call("ambiguous", 4, batch_size=4)
    assert len(batches(first)) == 1
    frozen.forward(MINUTE)
    for tenant in "ab":
        committed.run("SELECT mailgres.limit_tenant(%s, 50)", tenant)
    committed.run("SET lock_timeout = '1s'")
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM mailgres.buckets WHERE name = 'tenant:b' FOR UPDATE")
        assert committed.claim(limit=1) == []
        assert committed.statuses() == {"pending": 4}
    frozen.forward(2 * SECOND)
    assert {email.id for email in committed.claim(limit=1)} == {email.id for email in first}
    tokens = "SELECT tokens FROM mailgres.buckets WHERE name LIKE 'tenant:%'"
    assert [row.tokens for row in committed.rows(tokens)] == [48, 48]


def test_a_locked_row_of_a_batch_whose_lease_is_extended_is_not_reaped(
    committed: ProviderHarness, frozen: Clock, connect: Connect
) -> None:
    """Its own lease expires; it is not taken from the worker that makes the call."""
    committed.add("batches", batch=100)
    committed.lead("batches")
    committed.put(5)
    claimed = committed.claim()
    extend = "SELECT mailgres.extend(%s, %s)"
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (claimed[2].id,))
        for _ in range(3):
            frozen.forward(25 * SECOND)
            committed.rows(extend, claimed[0].lease_token, [email.id for email in claimed])
    assert committed.email(claimed[2].id).lease_until < frozen.now
    assert committed.value("SELECT mailgres.reap()") == 0
    assert {done.refused for done in committed.report_outcomes(claimed, "sent", batch_size=5)} == {
        None
    }


def test_a_batch_that_is_being_reported_does_not_hide_later_expired_leases(
    committed: ProviderHarness, frozen: Clock, connect: Connect
) -> None:
    committed.add("batches", batch=100)
    committed.lead("batches")
    committed.put(20)
    late = committed.claim(limit=20)
    frozen.forward(SECOND)
    committed.put(3, priority=1)
    died = committed.claim()
    frozen.forward(60 * MINUTE)
    with connect(autocommit=False) as telling:
        telling.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", (late[3].id,))
        assert {email.id for email in committed.claim_lost(3)} == {email.id for email in died}
    assert committed.value("SELECT mailgres.reap(1)") == 20
