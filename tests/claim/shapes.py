"""Queues of every shape, for the properties."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from claim.harness import Email

if TYPE_CHECKING:
    from claim.harness import ClaimHarness, Row

# The examples of a test share its database: each begins by laying out a queue of its own.
on_one_database = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

ROUTES = ("default", "second")

# Claims of one turn more often than larger ones.
limits = st.one_of(st.integers(1, 10), st.just(10), st.integers(11, 60))


@dataclass(frozen=True)
class Shape:
    """Tenants that differ, and emails that are ready."""

    weights: dict[str, int]
    paused: frozenset[str]
    emails: tuple[Email, ...]

    def lay_out(self, harness: ClaimHarness) -> None:
        """Make this the whole queue."""
        harness.clean()
        harness.add_route("second", "capture")
        for tenant, weight in self.weights.items():
            harness.add_tenant(tenant, weight=weight, paused=tenant in self.paused)
        harness.put_all(self.emails)

    def most(self, tenant: str, limit: int) -> int:
        """Return how many emails the tenant may have in a claim while another waits."""
        return 3 * self.weights.get(tenant, 1) * ceil(limit / 10)

    def claimable(self) -> int:
        """Return how many emails can be claimed."""
        return sum(email.tenant not in self.paused for email in self.emails)


@st.composite
def shapes(draw: st.DrawFn, routes: tuple[str, ...] = ROUTES, tenants: int = 5) -> Shape:
    """Draw a few tenants with backlogs from nothing to many turns."""
    names = draw(st.lists(st.sampled_from("aAbZ~é09"), min_size=1, max_size=tenants, unique=True))
    emails: list[Email] = []
    for name in names:
        many = draw(st.sampled_from([1, 3, 4, 12, 40]))
        priorities = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
        age = draw(st.integers(1, 7))
        route = draw(st.sampled_from(routes))
        emails += [
            Email(name, priorities[at % len(priorities)], at * age % 11, route)
            for at in range(many)
        ]
    special = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 4)))
    paused = draw(st.sets(st.sampled_from(list(special)))) if special else set()
    return Shape(special, frozenset(paused), tuple(emails))


def by_tenant(emails: list[Row]) -> Counter[str]:
    """Count emails by tenant."""
    return Counter(email["tenant_id"] for email in emails)
