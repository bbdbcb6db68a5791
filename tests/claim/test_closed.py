"""What is paused, switched off or broken is not claimed; what is open beside it is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.workbench import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.workbench import Workbench

CLOSED = [
    pytest.param("paused_until = mailgres.now() + interval '1 hour'", id="paused"),
    pytest.param("paused_until = 'infinity'", id="paused-until-further-notice"),
    pytest.param("enabled = false", id="disabled"),
    pytest.param("circuit = 'open'", id="circuit-open"),
    pytest.param("circuit = 'half_open'", id="circuit-half-open"),
]


def close(bench: Workbench, provider: str, how: str) -> None:
    bench.do(f"UPDATE mailgres.providers SET {how} WHERE name = %s", provider)


def test_a_paused_tenant_waits_until_it_goes_on(bench: Workbench) -> None:
    bench.add_tenant("paused", paused=True)
    paused = bench.put("paused", 3, priority=1)
    other = bench.put("other", 3)
    assert ids(bench.claim()) == set(other)
    assert bench.claim() == []
    bench.add_tenant("paused", paused=False)
    assert ids(bench.claim()) == set(paused)


def pause_many(bench: Workbench, count: int) -> None:
    names = "SELECT 'paused ' || n AS name FROM generate_series(1, %s) n"
    bench.do(
        "INSERT INTO mailgres.tenants (tenant_id, paused_at)"
        f" SELECT name, mailgres.now() FROM ({names}) t",
        count,
    )
    bench.do(
        "INSERT INTO email_queue (template_type, recipient_email, ready, tenant_id)"
        f" SELECT 'welcome_user', 'someone@example.com', true, name FROM ({names}) t",
        count,
    )


def test_many_paused_tenants_are_passed(bench: Workbench) -> None:
    pause_many(bench, 900)
    other = bench.put("the other")
    assert ids(bench.claim()) == set(other)


def test_more_paused_tenants_than_a_claim_visits_are_passed_by_the_next(bench: Workbench) -> None:
    pause_many(bench, 2500)
    other = bench.put("the other")
    assert ids(bench.claim() + bench.claim() + bench.claim()) == set(other)


def test_many_empty_routes_are_passed(bench: Workbench) -> None:
    for number in range(150):
        bench.add_route(f"empty-{number}", "capture")
    bench.add_route("route", "capture")
    bench.put(count=30, route="route")
    assert [len(bench.claim()) for _ in range(3)] == [10, 10, 10]


def test_a_paused_route_waits_and_the_others_do_not(bench: Workbench) -> None:
    bench.add_route("other", "capture")
    bench.do("UPDATE mailgres.routes SET paused = true WHERE route = 'default'")
    paused = bench.put(count=3)
    other = bench.put(count=3, route="other")
    assert ids(bench.claim()) == set(other)
    assert bench.claim() == []
    assert bench.claim(tokenless=True) == []
    bench.do("UPDATE mailgres.routes SET paused = false")
    assert ids(bench.claim()) == set(paused)


def test_a_route_without_providers_waits(bench: Workbench) -> None:
    bench.add_route("nowhere")
    bench.put(route="nowhere")
    assert bench.claim() == []


@pytest.mark.parametrize("how", CLOSED)
def test_a_route_whose_only_provider_is_closed_waits(bench: Workbench, how: str) -> None:
    waiting = bench.put(count=3)
    before = bench.waiting()
    close(bench, "capture", how)
    assert bench.claim() == []
    assert bench.waiting() == before
    bench.do(
        "UPDATE mailgres.providers SET paused_until = NULL, enabled = true, circuit = 'closed'"
    )
    assert ids(bench.claim()) == set(waiting)


@pytest.mark.parametrize("how", CLOSED)
def test_the_next_open_provider_of_the_route_is_used_instead(bench: Workbench, how: str) -> None:
    for name in ("first", "second", "third"):
        bench.add_provider(name)
    bench.add_route("default", "first", "second", "third")
    bench.put(count=30)
    assert {row["provider"] for row in bench.claim()} == {"first"}
    close(bench, "first", how)
    assert {row["provider"] for row in bench.claim()} == {"second"}
    close(bench, "second", how)
    assert {row["provider"] for row in bench.claim()} == {"third"}
    close(bench, "third", how)
    assert bench.claim() == []


def test_a_pause_ends_by_itself(bench: Workbench) -> None:
    close(bench, "capture", "paused_until = mailgres.now() + interval '1 hour'")
    bench.put()
    travel(bench.connection, timedelta(minutes=59))
    assert bench.claim() == []
    travel(bench.connection, timedelta(minutes=1))
    assert len(bench.claim()) == 1


def test_a_worker_gets_only_what_its_providers_can_send(bench: Workbench) -> None:
    for name in ("first", "second"):
        bench.add_provider(name)
    bench.add_route("both", "first", "second")
    bench.add_route("only-first", "first")
    both = bench.put(route="both")
    only_first = bench.put(route="only-first")
    other = bench.put(route="default")
    assert bench.claim(providers=[]) == []
    assert bench.claim(providers=["unheard-of"]) == []
    [claimed] = bench.claim(providers=["second"])
    assert (claimed["id"], claimed["provider"]) == (both[0], "second")
    assert bench.claim(providers=["second"]) == []
    [claimed] = bench.claim(providers=["second", "first"])
    assert (claimed["id"], claimed["provider"]) == (only_first[0], "first")
    assert ids(bench.claim()) == set(other)


def test_a_workers_own_provider_may_be_closed_too(bench: Workbench) -> None:
    for name in ("first", "second"):
        bench.add_provider(name)
    bench.add_route("default", "first", "second")
    bench.put()
    close(bench, "second", "circuit = 'open'")
    assert bench.claim(providers=["second"]) == []
    assert len(bench.claim(providers=["first"])) == 1


def test_a_processor_of_its_own_needs_no_provider_of_ours(bench: Workbench) -> None:
    close(bench, "capture", "enabled = false")
    bench.put()
    [claimed] = bench.claim(tokenless=True)
    assert claimed["provider"] is None
