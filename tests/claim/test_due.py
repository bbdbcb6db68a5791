"""An email is claimed when it is due, and not before."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.harness import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from claim.harness import ClaimHarness

INSTANT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _stopped_clock(harness: ClaimHarness) -> None:
    freeze(harness.connection)


def test_a_scheduled_email_waits_for_its_time(harness: ClaimHarness) -> None:
    email = harness.ask(
        "SELECT enqueue_email(NULL, 'welcome_user', 'someone@example.com', '{}',"
        " p_scheduled_for => mailgres.now() + interval '1 hour', p_priority => 1)"
    )
    assert harness.claim() == []
    travel(harness.connection, HOUR - INSTANT)
    assert harness.claim() == []
    travel(harness.connection, INSTANT)
    assert ids(harness.claim()) == {email}


def test_a_failed_email_waits_for_its_retry(harness: ClaimHarness) -> None:
    harness.put(retry_policy="stepped")
    for minutes in (1, 5, 15):
        [reported] = harness.finish(harness.claim(), "transient")
        assert reported["status"] == "pending"
        assert harness.claim() == []
        travel(harness.connection, timedelta(minutes=minutes) - INSTANT)
        assert harness.claim() == []
        travel(harness.connection, INSTANT)
    [reported] = harness.finish(harness.claim(), "transient")
    assert reported["status"] == "failed"
    travel(harness.connection, timedelta(days=2))
    assert harness.claim() == []


def test_what_is_not_ready_is_claimed_as_soon_as_it_is_due(harness: ClaimHarness) -> None:
    now = harness.put(ready=False)
    harness.put(ready=False, next_retry_at=INSTANT)
    assert ids(harness.claim()) == set(now)


def test_next_retry_at_set_by_hand_to_now_makes_it_claimable(harness: ClaimHarness) -> None:
    [email] = harness.put(ready=False, next_retry_at=HOUR)
    assert harness.claim() == []
    harness.do("UPDATE email_queue SET next_retry_at = mailgres.now()")
    assert ids(harness.claim()) == {email}


def test_next_retry_at_set_by_hand_to_later_makes_it_wait(harness: ClaimHarness) -> None:
    [email] = harness.put()
    harness.do("UPDATE email_queue SET next_retry_at = mailgres.now() + interval '1 hour'")
    assert harness.claim() == []
    travel(harness.connection, HOUR - INSTANT)
    assert harness.claim() == []
    travel(harness.connection, INSTANT)
    assert ids(harness.claim()) == {email}


@pytest.mark.parametrize("status", ["sent", "failed", "cancelled"])
def test_settled_emails_are_never_claimed(harness: ClaimHarness, status: str) -> None:
    harness.put()
    harness.do("UPDATE email_queue SET status = %s", status)
    harness.do("UPDATE email_queue SET next_retry_at = mailgres.now()")
    travel(harness.connection, timedelta(days=1))
    assert harness.claim() == []


def test_a_leased_email_is_claimed_again_when_its_lease_has_ended(harness: ClaimHarness) -> None:
    """Also where no janitor runs: whoever claims takes back what died."""
    harness.put()
    assert len(harness.claim()) == 1
    assert harness.claim() == []
    travel(harness.connection, HOUR)
    [again] = harness.claim()
    assert again["lease_losses"] == 1


def test_more_due_emails_than_one_claim_promotes_are_all_claimed(harness: ClaimHarness) -> None:
    harness.put(count=2500, ready=False, next_retry_at=HOUR)
    travel(harness.connection, HOUR)
    seen = [row for _ in range(3) for row in harness.claim(1000)]
    assert len(ids(seen)) == len(seen) == 2500
