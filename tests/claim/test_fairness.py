"""What every single claim keeps to, whatever the queue looks like."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from claim.harness import Email, ids
from claim.shapes import Shape, by_tenant, limits, on_one_database, shapes

if TYPE_CHECKING:
    from claim.harness import ClaimHarness, Row

CHANGED_BY_A_CLAIM = {
    "status",
    "ready",
    "due_at",
    "lease_token",
    "lease_worker",
    "leased_at",
    "lease_until",
    "attempt_started_at",
    "first_attempt_at",
    "last_attempt_at",
    "provider",
    "template_version",
}

some_limits = st.lists(limits, min_size=1, max_size=3)


def urgency(email: Row) -> tuple[int, object]:
    return email["priority"], email["next_retry_at"]


@on_one_database
@given(shape=shapes(), limits=some_limits)
def test_no_tenant_gets_more_than_its_share_while_another_waits(
    harness: ClaimHarness, shape: Shape, limits: list[int]
) -> None:
    shape.lay_out(harness)
    for limit in limits:
        claimed = harness.claim(limit)
        assert len(claimed) <= limit
        waiting = {
            (email["route"], email["tenant_id"])
            for email in harness.waiting()
            if email["tenant_id"] not in shape.paused
        }
        taken = Counter((email["route"], email["tenant_id"]) for email in claimed)
        for (route, tenant), count in taken.items():
            others = {t for r, t in waiting if r == route and t != tenant}
            assert count <= shape.most(tenant, limit) or not others


@on_one_database
@given(
    priorities=st.lists(st.integers(1, 9), min_size=1, max_size=80),
    weight=st.integers(1, 3),
    limit=limits,
    paused=st.integers(0, 3),
)
def test_alone_a_tenant_gets_the_whole_batch(
    harness: ClaimHarness, priorities: list[int], weight: int, limit: int, paused: int
) -> None:
    others = [f"paused {number}" for number in range(paused)]
    Shape(
        weights={"alone": weight, **dict.fromkeys(others, 1)},
        paused=frozenset(others),
        emails=(
            *(Email("alone", priority) for priority in priorities),
            *(Email(other) for other in others),
        ),
    ).lay_out(harness)
    assert by_tenant(harness.claim(limit)) == {"alone": min(limit, len(priorities))}


@on_one_database
@given(
    urgent=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    normal=st.lists(st.integers(1, 12), min_size=2, max_size=8),
    limit=st.integers(1, 12),
)
def test_the_urgent_take_at_most_half_while_others_can_fill_the_rest(
    harness: ClaimHarness, urgent: list[int], normal: list[int], limit: int
) -> None:
    # The names let the round begin with those who are not urgent: what the urgent get is what
    # the urgent pass gave them.
    queue = [Email(f"normal {n}", 3) for n, many in enumerate(normal) for _ in range(many)]
    queue += [Email(f"urgent {n}", 1 + n % 2) for n, many in enumerate(urgent) for _ in range(many)]
    Shape({}, frozenset(), tuple(queue)).lay_out(harness)

    count = sum(email["priority"] <= 2 for email in harness.claim(limit))
    others_could_have = sum(min(3, mine) for mine in normal)
    if others_could_have >= limit - limit // 2:
        assert count <= limit // 2
    # And the pass is there at all: who is urgent does not wait for the round to come.
    assert count >= min(limit // 2, sum(min(3, mine) for mine in urgent))


@on_one_database
@given(shape=shapes(), limits=some_limits)
def test_within_a_tenant_priority_counts_and_then_time(
    harness: ClaimHarness, shape: Shape, limits: list[int]
) -> None:
    shape.lay_out(harness)
    for limit in limits:
        claimed = harness.claim(limit)
        for left in harness.waiting():
            where = left["tenant_id"], left["route"]
            mine = [urgency(it) for it in claimed if (it["tenant_id"], it["route"]) == where]
            assert max(mine, default=urgency(left)) <= urgency(left)


@on_one_database
@given(shape=shapes(), limits=some_limits)
def test_claims_drain_the_queue_each_email_once_and_none_is_empty_before(
    harness: ClaimHarness, shape: Shape, limits: list[int]
) -> None:
    shape.lay_out(harness)
    seen: list[Row] = []
    while len(seen) < shape.claimable():
        claimed = harness.claim(limits[len(seen) % len(limits)])
        assert claimed, "something can be claimed, and the claim is empty"
        seen += claimed
    assert harness.claim() == []
    assert len(ids(seen)) == len(seen) == shape.claimable()
    assert not {email["tenant_id"] for email in seen} & shape.paused


@on_one_database
@given(shape=shapes(), limit=limits)
def test_a_claim_leases_what_it_returns_and_touches_nothing_else(
    harness: ClaimHarness, shape: Shape, limit: int
) -> None:
    shape.lay_out(harness)
    before = {row["id"]: row for row in harness.rows("SELECT * FROM email_queue")}
    claimed = {row["id"]: row for row in harness.claim(limit)}
    for row in harness.rows("SELECT * FROM email_queue"):
        assert row == claimed.get(row["id"], before[row["id"]])
    assert len({row["lease_token"] for row in claimed.values()}) <= 1
    for email_id, row in claimed.items():
        changed = {column for column in row if row[column] != before[email_id][column]}
        assert changed == CHANGED_BY_A_CLAIM
        assert (row["status"], row["ready"], row["lease_worker"]) == ("sending", False, "worker")
        assert (row["lease_until"] - row["leased_at"]).total_seconds() == 60
