"""What many claims add up to: nobody waits for longer than a round."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claim.harness import Email
from claim.shapes import by_tenant, on_one_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claim.harness import ClaimHarness, Row

FILL = """
    INSERT INTO email_queue (template_type, recipient_email, ready, tenant_id, priority)
    SELECT 'welcome_user', 'someone@example.com', true,
           CASE WHEN n <= 1000 THEN 'small ' || n ELSE %s END,
           CASE WHEN n <= 1000 THEN 5 ELSE %s END
    FROM generate_series(1, 101000) n
"""


def refill(harness: ClaimHarness, claimed: list[Row]) -> None:
    """Put an email back for each that was claimed, so that everybody always waits."""
    harness.put_all(Email(row["tenant_id"], row["priority"], route=row["route"]) for row in claimed)


def endless(harness: ClaimHarness, limit: int) -> Iterator[list[Row]]:
    """Claim from a queue that never gets shorter."""
    while True:
        claimed = harness.claim(limit)
        yield claimed
        refill(harness, claimed)


@pytest.mark.parametrize(
    ("name", "priority", "limit"),
    [
        pytest.param("a large one", 5, 10, id="large-first"),
        pytest.param("the large one", 5, 100, id="large-last-claims-of-100"),
        pytest.param("a large one", 1, 10, id="large-calls-all-urgent"),
    ],
)
def test_a_thousand_small_tenants_before_a_twentieth_of_a_large_one(
    harness: ClaimHarness, name: str, priority: int, limit: int
) -> None:
    harness.do(FILL, name, priority)
    total: Counter[str] = Counter()
    while len(total) < 1001:
        claimed = harness.claim(limit)
        assert claimed
        total.update(by_tenant(claimed))
        assert total[name] < 5000
    assert total[name] > 0


@on_one_database
@given(
    weights=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    limit=st.integers(1, 12),
    rounds=st.integers(1, 3),
)
def test_every_tenant_is_served_within_one_round(
    harness: ClaimHarness, weights: list[int], limit: int, rounds: int
) -> None:
    harness.clean()
    for number, weight in enumerate(weights):
        harness.add_tenant(f"tenant {number}", weight=weight)
        harness.put(f"tenant {number}", 4 * limit)
    # A claim serves at least one tenant, and passes on to the next when one has its share.
    claims = min(len(weights), ceil(sum(3 * weight for weight in weights) / limit))
    stream = endless(harness, limit)
    for _ in range(rounds):
        served = {row["tenant_id"] for _ in range(claims) for row in next(stream)}
        assert len(served) == len(weights)


@on_one_database
@given(urgent=st.integers(1, 8), normal=st.integers(1, 12), limit=st.integers(1, 10))
@example(urgent=8, normal=12, limit=10)
def test_half_of_a_claim_serves_tenants_in_turn_however_many_emails_are_urgent(
    harness: ClaimHarness, urgent: int, normal: int, limit: int
) -> None:
    harness.clean()
    for number in range(urgent):
        harness.put(f"urgent {number}", 4 * limit, priority=1)
    for number in range(normal):
        harness.put(f"normal {number}", 4 * limit)
    # Half of every claim goes round among all, however many are urgent.
    claims = ceil(3 * (urgent + normal) / (limit - limit // 2))
    total: Counter[str] = Counter()
    for _, claimed in zip(range(claims), endless(harness, limit), strict=False):
        taken = by_tenant(claimed)
        assert max(taken.values()) <= 3
        total.update(taken)
    assert len(total) == urgent + normal


@on_one_database
@given(second=st.integers(1, 40), first=st.integers(1, 40))
def test_routes_take_turns_between_claims(harness: ClaimHarness, first: int, second: int) -> None:
    harness.clean()
    harness.add_route("second", "capture")
    harness.put("tenant", first)
    harness.put("tenant", second, route="second")
    claims = [harness.claim() for _ in range(2)]
    assert {row["route"] for claimed in claims for row in claimed} == {"default", "second"}


@pytest.mark.parametrize("priority", [1, 5])
def test_equal_tenants_get_equal_shares_in_the_long_run(
    harness: ClaimHarness, priority: int
) -> None:
    tenants = ("a", "b", "c", "d")
    for tenant in tenants:
        harness.put(tenant, 40, priority=priority)
    total: Counter[str] = Counter()
    for _, claimed in zip(range(20), endless(harness, 10), strict=False):
        total.update(by_tenant(claimed))
    assert max(total.values()) <= 1.25 * min(total.values())
