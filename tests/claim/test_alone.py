"""An email that a worker held when it died is claimed alone, so that it takes no other with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.workbench import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from uuid import UUID

    from claim.workbench import Workbench

LEASE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _time_stands_still(bench: Workbench) -> None:
    freeze(bench.connection)


def lose(bench: Workbench) -> set[UUID]:
    """Claim everything, and let the worker die before it calls the provider."""
    claimed = ids(bench.claim(limit=100))
    travel(bench.connection, LEASE + timedelta(seconds=1))
    assert bench.ask("SELECT mailgres.reap()") == len(claimed)
    return claimed


def test_each_of_a_dead_workers_emails_is_claimed_alone(bench: Workbench) -> None:
    bench.put(count=5)
    lost = lose(bench)
    claims = [ids(bench.claim(limit=100)) for _ in lost]
    assert [len(claim) for claim in claims] == [1] * 5
    assert set().union(*claims) == lost


def test_others_are_claimed_without_it(bench: Workbench) -> None:
    bench.put()
    (lost,) = lose(bench)
    others = set(bench.put("a", 3)) | set(bench.put("b", 3))
    assert ids(bench.claim(limit=100)) == {lost}
    assert ids(bench.claim(limit=100)) == others


def test_an_email_that_got_through_a_call_is_one_among_others_again(bench: Workbench) -> None:
    bench.put(count=2)
    lose(bench)
    for _ in range(2):
        bench.finish(bench.claim(limit=100), "transient")
    travel(bench.connection, timedelta(hours=1))
    assert len(bench.claim(limit=100)) == 2


def test_a_suppressed_one_holds_up_nobody(bench: Workbench) -> None:
    bench.put(recipient_email="gone@example.com")
    lose(bench)
    bench.do(
        "INSERT INTO email_suppressions (recipient_email, reason)"
        " VALUES ('gone@example.com', 'manual')"
    )
    others = set(bench.put(count=3))
    assert ids(bench.claim(limit=100)) == others


def test_a_batch_that_may_have_arrived_is_claimed_whole_and_alone(bench: Workbench) -> None:
    bench.add_provider("batches", idempotent=True)
    bench.do(
        "UPDATE mailgres.providers SET batch_size = 10, fixed_batches = true WHERE name = 'batches'"
    )
    bench.add_route("default", "batches")
    bench.put(count=4)
    lost = lose(bench)
    others = set(bench.put(count=3))
    assert ids(bench.claim(limit=100)) == lost
    assert ids(bench.claim(limit=100)) == others
