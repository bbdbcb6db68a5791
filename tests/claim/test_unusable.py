"""What is paused, switched off or broken is not claimed; what is open beside it is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.harness import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.harness import ClaimHarness

CLOSED = [
    pytest.param("paused_until = mailgres.now() + interval '1 hour'", id="paused"),
    pytest.param("paused_until = 'infinity'", id="paused-until-further-notice"),
    pytest.param("enabled = false", id="disabled"),
    pytest.param("circuit = 'open'", id="circuit-open"),
    pytest.param("circuit = 'half_open'", id="circuit-half-open"),
]


def close(harness: ClaimHarness, provider: str, how: str) -> None:
    harness.do(f"UPDATE mailgres.providers SET {how} WHERE name = %s", provider)


def test_a_paused_tenant_waits_until_it_is_resumed(harness: ClaimHarness) -> None:
    harness.add_tenant("paused", paused=True)
    paused = harness.put("paused", 3, priority=1)
    other = harness.put("other", 3)
    assert ids(harness.claim()) == set(other)
    assert harness.claim() == []
    harness.add_tenant("paused", paused=False)
    assert ids(harness.claim()) == set(paused)


def pause_many(harness: ClaimHarness, count: int) -> None:
    names = "SELECT 'paused ' || n AS name FROM generate_series(1, %s) n"
    harness.do(
        "INSERT INTO mailgres.tenants (tenant_id, paused_at)"
        f" SELECT name, mailgres.now() FROM ({names}) t",
        count,
    )
    harness.do(
        "INSERT INTO email_queue (template_type, recipient_email, ready, tenant_id)"
        f" SELECT 'welcome_user', 'someone@example.com', true, name FROM ({names}) t",
        count,
    )


def test_many_paused_tenants_are_passed(harness: ClaimHarness) -> None:
    pause_many(harness, 900)
    other = harness.put("the other")
    assert ids(harness.claim()) == set(other)


def test_more_paused_tenants_than_a_claim_visits_are_passed_by_the_next(
    harness: ClaimHarness,
) -> None:
    pause_many(harness, 2500)
    other = harness.put("the other")
    assert ids(harness.claim() + harness.claim() + harness.claim()) == set(other)


def test_many_empty_routes_are_passed(harness: ClaimHarness) -> None:
    for number in range(150):
        harness.add_route(f"empty-{number}", "capture")
    harness.add_route("route", "capture")
    harness.put(count=30, route="route")
    assert [len(harness.claim()) for _ in range(3)] == [10, 10, 10]


def test_a_paused_route_waits_and_the_others_do_not(harness: ClaimHarness) -> None:
    harness.add_route("other", "capture")
    harness.do("UPDATE mailgres.routes SET paused = true WHERE route = 'default'")
    paused = harness.put(count=3)
    other = harness.put(count=3, route="other")
    assert ids(harness.claim()) == set(other)
    assert harness.claim() == []
    assert harness.claim(tokenless=True) == []
    harness.do("UPDATE mailgres.routes SET paused = false")
    assert ids(harness.claim()) == set(paused)


def test_a_route_without_providers_waits(harness: ClaimHarness) -> None:
    harness.add_route("nowhere")
    harness.put(route="nowhere")
    assert harness.claim() == []


@pytest.mark.parametrize("how", CLOSED)
def test_a_route_without_a_usable_provider_waits(harness: ClaimHarness, how: str) -> None:
    waiting = harness.put(count=3)
    before = harness.waiting()
    close(harness, "capture", how)
    assert harness.claim() == []
    assert harness.waiting() == before
    harness.do(
        "UPDATE mailgres.providers SET paused_until = NULL, enabled = true, circuit = 'closed'"
    )
    assert ids(harness.claim()) == set(waiting)


@pytest.mark.parametrize("how", CLOSED)
def test_the_next_open_provider_of_the_route_is_used_instead(
    harness: ClaimHarness, how: str
) -> None:
    for name in ("first", "second", "third"):
        harness.add_provider(name)
    harness.add_route("default", "first", "second", "third")
    harness.put(count=30)
    assert {row["provider"] for row in harness.claim()} == {"first"}
    close(harness, "first", how)
    assert {row["provider"] for row in harness.claim()} == {"second"}
    close(harness, "second", how)
    assert {row["provider"] for row in harness.claim()} == {"third"}
    close(harness, "third", how)
    assert harness.claim() == []


def test_a_pause_ends_by_itself(harness: ClaimHarness) -> None:
    close(harness, "capture", "paused_until = mailgres.now() + interval '1 hour'")
    harness.put()
    travel(harness.connection, timedelta(minutes=59))
    assert harness.claim() == []
    travel(harness.connection, timedelta(minutes=1))
    assert len(harness.claim()) == 1


def test_a_worker_gets_only_what_its_providers_can_send(harness: ClaimHarness) -> None:
    for name in ("first", "second"):
        harness.add_provider(name)
    harness.add_route("both", "first", "second")
    harness.add_route("only-first", "first")
    both = harness.put(route="both")
    only_first = harness.put(route="only-first")
    other = harness.put(route="default")
    assert harness.claim(providers=[]) == []
    assert harness.claim(providers=["unheard-of"]) == []
    [claimed] = harness.claim(providers=["second"])
    assert (claimed["id"], claimed["provider"]) == (both[0], "second")
    assert harness.claim(providers=["second"]) == []
    [claimed] = harness.claim(providers=["second", "first"])
    assert (claimed["id"], claimed["provider"]) == (only_first[0], "first")
    assert ids(harness.claim()) == set(other)


def test_a_workers_own_provider_may_be_closed_too(harness: ClaimHarness) -> None:
    for name in ("first", "second"):
        harness.add_provider(name)
    harness.add_route("default", "first", "second")
    harness.put()
    close(harness, "second", "circuit = 'open'")
    assert harness.claim(providers=["second"]) == []
    assert len(harness.claim(providers=["first"])) == 1


def test_a_processor_of_its_own_needs_no_provider_of_ours(harness: ClaimHarness) -> None:
    close(harness, "capture", "enabled = false")
    harness.put()
    [claimed] = harness.claim(tokenless=True)
    assert claimed["provider"] is None
