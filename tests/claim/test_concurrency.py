"""Many claimers at once, each with a connection of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from claim.harness import ClaimHarness, Row, ids
from support.concurrency import until

if TYPE_CHECKING:
    from support.postgres import Connect

# Who waits for a lock where nobody may wait gets an error instead of the lock.
IMPATIENT = "SET lock_timeout = '10s'"


@pytest.fixture
def claimers(connect: Connect) -> list[ClaimHarness]:
    """Eight claimers."""
    return [claimer(connect) for _ in range(8)]


def claimer(connect: Connect, *, autocommit: bool = True) -> ClaimHarness:
    connection = connect()
    connection.execute(IMPATIENT)
    connection.autocommit = autocommit
    return ClaimHarness(connection)


def drain(claimers: list[ClaimHarness], limit: int) -> list[Row]:
    """Let all claim at the same moment, until each finds nothing more."""
    start = Barrier(len(claimers), timeout=60)

    def work(mine: ClaimHarness) -> list[Row]:
        seen: list[Row] = []
        start.wait()
        while claimed := mine.claim(limit):
            seen += claimed
        return seen

    with ThreadPoolExecutor(len(claimers)) as pool:
        return [row for seen in pool.map(work, claimers) for row in seen]


def test_two_claimers_never_get_the_same_email(
    harness: ClaimHarness, claimers: list[ClaimHarness]
) -> None:
    pair, rounds = claimers[:2], 60
    start = Barrier(2, timeout=60)

    def work(mine: ClaimHarness) -> list[list[Row]]:
        seen = []
        for _ in range(rounds):
            start.wait()  # the emails of this round are there
            seen.append(mine.claim(4))
            start.wait()  # both have claimed
            if mine is pair[0]:
                harness.put("tenant", 6)
        return seen

    harness.put("tenant", 6)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, pair)
    for one, other in zip(first, second, strict=True):
        assert not ids(one) & ids(other)
    everything = [row for claimed in first + second for row in claimed]
    assert len(ids(everything)) == len(everything)


@pytest.mark.parametrize("slots", [32, 2])
def test_eight_claimers_drain_the_queue_exactly_once(
    harness: ClaimHarness, claimers: list[ClaimHarness], slots: int
) -> None:
    harness.do("DELETE FROM mailgres.claim_slots WHERE slot > %s", slots)
    for number in range(10):
        harness.put(f"tenant {number}", 490, priority=1 + number % 5)
    harness.put("suppressed", 50, recipient_email="gone@example.com")
    harness.put("late", 50, ready=False)
    harness.do("INSERT INTO email_suppressions VALUES ('gone@example.com', '*', 'manual')")
    seen = drain(claimers, 40)
    assert len(ids(seen)) == len(seen) == 4950
    assert harness.waiting() == []
    by_status = harness.rows("SELECT status, count(*) FROM email_queue GROUP BY 1 ORDER BY 1")
    assert [tuple(row.values()) for row in by_status] == [("cancelled", 50), ("sending", 4950)]


def test_a_claimer_that_does_not_commit_blocks_nobody(
    harness: ClaimHarness, connect: Connect
) -> None:
    harness.put(count=25)
    stuck = claimer(connect, autocommit=False)
    other = claimer(connect)
    held = stuck.claim()
    claims = [other.claim(), other.claim(), other.claim()]
    assert [len(claimed) for claimed in claims] == [10, 5, 0]
    assert not ids(held) & ids(claims[0] + claims[1])
    stuck.connection.rollback()
    assert ids(other.claim()) == ids(held)


def test_a_locked_email_is_passed_also_by_the_janitors(
    harness: ClaimHarness, connect: Connect
) -> None:
    emails = harness.put(count=2, ready=False)
    stuck = claimer(connect, autocommit=False)
    stuck.rows("SELECT FROM email_queue WHERE id = %s FOR UPDATE", emails[0])
    other = claimer(connect)
    assert ids(other.claim()) == {emails[1]}
    stuck.connection.rollback()
    assert ids(other.claim()) == {emails[0]}


def test_a_tenant_whose_emails_are_all_locked_does_not_end_the_round(
    harness: ClaimHarness, connect: Connect
) -> None:
    harness.put("a", 5)
    harness.put("b", 5)
    stuck = claimer(connect, autocommit=False)
    stuck.rows("SELECT FROM email_queue WHERE tenant_id = 'a' FOR UPDATE")
    claimed = claimer(connect).claim()
    assert {row["tenant_id"] for row in claimed} == {"b"}
    assert len(claimed) == 5


def test_with_every_slot_taken_a_claim_waits_for_one(
    harness: ClaimHarness, connect: Connect
) -> None:
    harness.do("DELETE FROM mailgres.claim_slots WHERE slot > 2")
    harness.put(count=9)
    holders = [claimer(connect, autocommit=False) for _ in range(2)]
    held = [row for holder in holders for row in holder.claim(3)]
    late = ClaimHarness(connect())
    blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
    pid = late.ask("SELECT pg_backend_pid()")
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(late.claim, 3)
        until(lambda: harness.ask(blocked, pid), "the third claim waits for a slot")
        assert not claiming.done()
        holders[0].connection.commit()
        claimed = claiming.result(timeout=60)
    assert len(claimed) == 3
    assert not ids(claimed) & ids(held)
