"""An email is claimed when it is due, and not before."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.workbench import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from claim.workbench import Workbench

INSTANT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _stopped_clock(bench: Workbench) -> None:
    freeze(bench.connection)


def test_what_is_scheduled_for_later_waits_for_its_time(bench: Workbench) -> None:
    email = bench.ask(
        "SELECT enqueue_email(NULL, 'welcome_user', 'someone@example.com', '{}',"
        " p_scheduled_for => mailgres.now() + interval '1 hour', p_priority => 1)"
    )
    assert bench.claim() == []
    travel(bench.connection, HOUR - INSTANT)
    assert bench.claim() == []
    travel(bench.connection, INSTANT)
    assert ids(bench.claim()) == {email}


def test_a_failed_try_waits_for_its_retry(bench: Workbench) -> None:
    bench.put(retry_policy="stepped")
    for minutes in (1, 5, 15):
        [told] = bench.finish(bench.claim(), "transient")
        assert told["status"] == "pending"
        assert bench.claim() == []
        travel(bench.connection, timedelta(minutes=minutes) - INSTANT)
        assert bench.claim() == []
        travel(bench.connection, INSTANT)
    [told] = bench.finish(bench.claim(), "transient")
    assert told["status"] == "failed"
    travel(bench.connection, timedelta(days=2))
    assert bench.claim() == []


def test_what_is_not_ready_is_claimed_as_soon_as_it_is_due(bench: Workbench) -> None:
    now = bench.put(ready=False)
    bench.put(ready=False, next_retry_at=INSTANT)
    assert ids(bench.claim()) == set(now)


def test_next_retry_at_set_by_hand_to_now_makes_it_claimable(bench: Workbench) -> None:
    [email] = bench.put(ready=False, next_retry_at=HOUR)
    assert bench.claim() == []
    bench.do("UPDATE email_queue SET next_retry_at = mailgres.now()")
    assert ids(bench.claim()) == {email}


def test_next_retry_at_set_by_hand_to_later_makes_it_wait(bench: Workbench) -> None:
    [email] = bench.put()
    bench.do("UPDATE email_queue SET next_retry_at = mailgres.now() + interval '1 hour'")
    assert bench.claim() == []
    travel(bench.connection, HOUR - INSTANT)
    assert bench.claim() == []
    travel(bench.connection, INSTANT)
    assert ids(bench.claim()) == {email}


@pytest.mark.parametrize("status", ["sent", "failed", "cancelled"])
def test_what_is_settled_is_never_claimed(bench: Workbench, status: str) -> None:
    bench.put()
    bench.do("UPDATE email_queue SET status = %s", status)
    bench.do("UPDATE email_queue SET next_retry_at = mailgres.now()")
    travel(bench.connection, timedelta(days=1))
    assert bench.claim() == []


def test_a_leased_email_is_claimed_again_when_its_lease_has_ended(bench: Workbench) -> None:
    """Also where no janitor runs: whoever claims takes back what died."""
    bench.put()
    assert len(bench.claim()) == 1
    assert bench.claim() == []
    travel(bench.connection, HOUR)
    [again] = bench.claim()
    assert again["lease_losses"] == 1


def test_more_due_at_once_than_one_claim_promotes(bench: Workbench) -> None:
    bench.put(count=2500, ready=False, next_retry_at=HOUR)
    travel(bench.connection, HOUR)
    seen = [row for _ in range(3) for row in bench.claim(1000)]
    assert len(ids(seen)) == len(seen) == 2500
