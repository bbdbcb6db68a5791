"""What operators order about providers, tenants and routes, and what is refused."""

from __future__ import annotations

import psycopg
import pytest

from mailgres import errors
from mailgres.sqlstates import from_database
from providers_state.harness import MINUTE, ProviderHarness
from support.queue import Clock

UNKNOWN, LIMIT, ROUTE, PAUSE = (
    errors.UnknownProvider,
    errors.InvalidLimit,
    errors.InvalidRoute,
    errors.InvalidPause,
)

REFUSED = [
    ("pause_provider('nobody')", UNKNOWN),
    ("pause_provider(NULL)", UNKNOWN),
    ("pause_provider('first', mailgres.now())", PAUSE),
    ("pause_provider('first', '-infinity')", PAUSE),
    ("resume_provider('nobody')", UNKNOWN),
    ("reset_provider('nobody')", UNKNOWN),
    ("limit_provider('nobody', 1, 1, 1)", UNKNOWN),
    ("limit_provider('first', 0, NULL, NULL)", LIMIT),
    ("limit_provider('first', -1, NULL, NULL)", LIMIT),
    ("limit_provider('first', 'NaN', NULL, NULL)", LIMIT),
    ("limit_provider('first', 'Infinity', NULL, NULL)", LIMIT),
    ("limit_provider('first', 1e-300, NULL, NULL)", LIMIT),
    ("limit_provider('first', NULL, 0, NULL)", LIMIT),
    ("limit_provider('first', NULL, NULL, -1)", LIMIT),
    ("limit_tenant(NULL, 1)", LIMIT),
    ("limit_tenant('', 1)", LIMIT),
    ("limit_tenant('a', 0)", LIMIT),
    ("limit_tenant('a', 'NaN')", LIMIT),
    ("limit_tenant('a', 'Infinity')", LIMIT),
    ("set_route('default', '{}')", ROUTE),
    ("set_route('default', NULL)", ROUTE),
    ("set_route(NULL, '{first}')", ROUTE),
    ("set_route('No Name', '{first}')", ROUTE),
    ("set_route('default', '{first,nobody}')", UNKNOWN),
    ("set_route('default', '{first,NULL}')", UNKNOWN),
]


@pytest.mark.parametrize(("order", "error"), REFUSED)
def test_bad_operator_actions_are_refused_with_a_hint_and_change_nothing(
    harness: ProviderHarness, order: str, error: type[errors.MailgresError]
) -> None:
    before = (harness.provider(), harness.rows("TABLE mailgres.route_providers"))
    with pytest.raises(psycopg.Error) as caught, harness.conn.transaction():
        harness.run(f"SELECT mailgres.{order}")
    ours = from_database(caught.value)
    assert type(ours) is error
    assert ours.hint
    assert (harness.provider(), harness.rows("TABLE mailgres.route_providers")) == before
    assert harness.rows("SELECT FROM mailgres.buckets") == []
    assert harness.noted() == []


def test_a_paused_provider_gets_no_email_until_it_is_resumed(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put(2)
    harness.run("SELECT mailgres.pause_provider('first', %s, 'maintenance')", clock.now + MINUTE)
    assert harness.claim() == []
    clock.forward(MINUTE)
    assert len(harness.claim(limit=1)) == 1
    harness.run("SELECT mailgres.pause_provider('first')")
    assert harness.claim() == []
    harness.run("SELECT mailgres.resume_provider('first')")
    assert len(harness.claim()) == 1
    assert harness.noted() == ["Paused", "Paused", "Resumed"]
    assert harness.notes()[0].reason == "maintenance"


@pytest.mark.usefixtures("clock")
def test_a_reset_forgets_failures_and_waits(harness: ProviderHarness) -> None:
    harness.put(2)
    harness.call("rate", retry_after=MINUTE)
    harness.run("SELECT mailgres.reset_provider('first')")
    assert len(harness.claim(limit=1)) == 1


def test_a_provider_named_twice_in_a_route_counts_where_it_comes_first(
    harness: ProviderHarness,
) -> None:
    harness.add("second")
    harness.lead("second", "first", "second")
    query = (
        "SELECT provider FROM mailgres.route_providers WHERE route = 'default' ORDER BY position"
    )
    assert [row.provider for row in harness.rows(query)] == ["second", "first"]


@pytest.mark.parametrize("reported", ["NaN", "Infinity", "-1", "0", "1e-300"])
def test_an_absurd_limit_from_a_provider_is_ignored(
    harness: ProviderHarness, reported: str
) -> None:
    harness.run("SELECT mailgres.learn_limits('first', %s, NULL, NULL, NULL)", reported)
    harness.put()
    assert harness.rows("SELECT FROM mailgres.buckets") == []
    assert len(harness.claim()) == 1
