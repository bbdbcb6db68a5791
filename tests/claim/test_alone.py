"""An email that a worker held when it died is claimed alone, so that it takes no other with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.harness import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from uuid import UUID

    from claim.harness import ClaimHarness

LEASE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _time_stands_still(harness: ClaimHarness) -> None:
    freeze(harness.connection)


def lose(harness: ClaimHarness) -> set[UUID]:
    """Claim everything, and let the worker die before it calls the provider."""
    claimed = ids(harness.claim(limit=100))
    travel(harness.connection, LEASE + timedelta(seconds=1))
    assert harness.ask("SELECT mailgres.reap()") == len(claimed)
    return claimed


def test_each_of_a_dead_workers_emails_is_claimed_alone(harness: ClaimHarness) -> None:
    harness.put(count=5)
    lost = lose(harness)
    claims = [ids(harness.claim(limit=100)) for _ in lost]
    assert [len(claim) for claim in claims] == [1] * 5
    assert set().union(*claims) == lost


def test_an_email_that_lost_its_worker_is_claimed_alone(harness: ClaimHarness) -> None:
    harness.put()
    (lost,) = lose(harness)
    others = set(harness.put("a", 3)) | set(harness.put("b", 3))
    assert ids(harness.claim(limit=100)) == {lost}
    assert ids(harness.claim(limit=100)) == others


def test_an_email_that_got_through_a_call_is_one_among_others_again(harness: ClaimHarness) -> None:
    harness.put(count=2)
    lose(harness)
    for _ in range(2):
        harness.finish(harness.claim(limit=100), "transient")
    travel(harness.connection, timedelta(hours=1))
    assert len(harness.claim(limit=100)) == 2


def test_a_suppressed_email_that_lost_its_worker_delays_no_other(harness: ClaimHarness) -> None:
    harness.put(recipient_email="gone@example.com")
    lose(harness)
    harness.do(
        "INSERT INTO email_suppressions (recipient_email, reason)"
        " VALUES ('gone@example.com', 'manual')"
    )
    others = set(harness.put(count=3))
    assert ids(harness.claim(limit=100)) == others


def test_a_batch_that_may_have_arrived_is_claimed_whole_and_alone(harness: ClaimHarness) -> None:
    harness.add_provider("batches", idempotent=True)
    harness.do(
        "UPDATE mailgres.providers SET batch_size = 10, fixed_batches = true WHERE name = 'batches'"
    )
    harness.add_route("default", "batches")
    harness.put(count=4)
    lost = lose(harness)
    others = set(harness.put(count=3))
    assert ids(harness.claim(limit=100)) == lost
    assert ids(harness.claim(limit=100)) == others
