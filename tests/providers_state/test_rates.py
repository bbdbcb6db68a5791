"""Rate limits that all workers share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers_state.harness import DAY, HOUR, MINUTE, SECOND, ProviderHarness, batches
from support.queue import Clock, report


def limit(harness: ProviderHarness, per_second: float, name: str = "first") -> None:
    harness.run("SELECT mailgres.limit_provider(%s, %s, NULL, NULL)", name, per_second)


def limit_calls(harness: ProviderHarness, per_second: float, name: str = "first") -> None:
    harness.run("SELECT mailgres.learn_limits(%s, %s, NULL, NULL, NULL)", name, per_second)


def test_a_rate_limit_allows_the_calls_of_one_second_at_once(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put(100)
    limit(harness, 4)
    assert len(harness.claim(limit=50)) == 4
    assert harness.claim(limit=50) == []
    clock.forward(SECOND / 2)
    assert len(harness.claim(limit=50)) == 2
    harness.run(
        "UPDATE email_queue SET lease_until = now() + interval '1 day' WHERE status = 'sending'"
    )
    clock.forward(HOUR)
    assert len(harness.claim(limit=50)) == 4


def test_a_rate_below_one_per_second_is_respected(harness: ProviderHarness, clock: Clock) -> None:
    harness.put(10)
    limit(harness, 0.5)
    assert len(harness.claim()) == 1
    clock.forward(SECOND)
    assert harness.claim() == []
    clock.forward(SECOND)
    assert len(harness.claim()) == 1


steps = st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 40)), min_size=1, max_size=25)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rate=st.sampled_from([0.3, 1, 2, 5.5, 20]), batch=st.sampled_from([1, 10]), steps=steps)
def test_never_more_calls_than_the_limit_in_any_window(
    harness: ProviderHarness, clock: Clock, rate: float, batch: int, steps: list[tuple[int, int]]
) -> None:
    with harness.conn.transaction(force_rollback=True):
        harness.alter("first", batch_size=batch, fixed_batches=batch > 1)
        harness.put(sum(wanted for _, wanted in steps))
        limit_calls(harness, rate)
        calls: list[tuple[timedelta, int]] = []
        passed = timedelta()
        for milliseconds, wanted in steps:
            step = timedelta(milliseconds=milliseconds)
            passed += step
            clock.forward(step)
            calls.append((passed, len(batches(harness.claim(limit=wanted)))))
    for start, (begins, _) in enumerate(calls):
        made = 0
        for ends, count in calls[start:]:
            made += count
            assert made <= max(rate, 1) + rate * (ends - begins).total_seconds() + 1e-6


def test_a_batch_counts_as_one_call(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    limit_calls(harness, 2, "batches")
    harness.put(1000)
    assert [len(call) for call in batches(harness.claim(limit=1000))] == [100, 100]
    clock.forward(SECOND / 2)
    assert [len(call) for call in batches(harness.claim(limit=1000))] == [100]


def test_urgent_emails_go_alone_and_take_every_other_call(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    limit_calls(harness, 4, "batches")
    harness.put(300)
    harness.put(50, priority=1)
    for _ in range(3):
        sizes = [len(call) for call in batches(harness.claim(limit=300))]
        assert sizes[2:] == [1, 1]
        assert min(sizes[:2]) > 20
        harness.run("UPDATE email_queue SET status = 'pending', ready = true WHERE priority > 2")
        clock.forward(SECOND)


def test_a_provider_of_plain_batches_counts_calls_by_their_size(harness: ProviderHarness) -> None:
    harness.add("plain", keys=False, batch=10)
    harness.lead("plain")
    limit_calls(harness, 2, "plain")
    harness.put(100)
    assert len(harness.claim(limit=100)) == 20


def test_limits_of_calls_and_of_emails_both_hold(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("batches", batch=100)
    harness.lead("batches")
    limit_calls(harness, 2, "batches")
    limit(harness, 150, "batches")
    harness.put(500)
    assert [len(call) for call in batches(harness.claim(limit=500))] == [100, 50]
    clock.forward(SECOND)
    assert len(harness.claim(limit=500)) == 150


def test_a_limit_for_a_tenant_holds_and_does_not_touch_the_others(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.run("SELECT mailgres.limit_tenant('loud', 2)")
    harness.put(50, tenant_id="loud")
    harness.put(50, tenant_id="calm")
    seen: list[Any] = []
    for _ in range(5):
        seen += harness.claim(limit=10)
    tenants = [email.tenant_id for email in seen]
    assert (tenants.count("loud"), tenants.count("calm")) == (2, 48)
    harness.claim()
    assert harness.claim() == []
    assert harness.mark_asleep() == clock.now + SECOND / 2
    clock.forward(SECOND)
    assert [email.tenant_id for email in harness.claim()] == ["loud", "loud"]
    harness.run("SELECT mailgres.limit_tenant('loud', NULL)")
    assert len(harness.claim()) == 10


@pytest.mark.parametrize(
    ("reported", "wait"), [({}, 2 * SECOND), ({"retry_after": 30}, 30 * SECOND)]
)
def test_a_rate_limited_provider_makes_its_route_wait(
    harness: ProviderHarness, clock: Clock, reported: dict[str, Any], wait: timedelta
) -> None:
    harness.add("second")
    harness.lead("first", "second")
    harness.put(5)
    (email,) = harness.call("rate", account=True, **reported)
    provider = harness.provider()
    assert (provider.limited_until, provider.limited_by) == (clock.now + wait, "rate")
    after = harness.email(email.id)
    assert (after.retries, after.next_retry_at) == (0, clock.now + wait)
    assert harness.claim() == []
    assert harness.mark_asleep() == clock.now + wait
    clock.forward(wait)
    assert {email.provider for email in harness.claim()} == {"first"}
    assert harness.noted() == ["RateLimited"]


def test_a_time_that_is_over_is_not_taken_for_a_wait(
    harness: ProviderHarness, clock: Clock
) -> None:
    """Its clock is behind ours."""
    harness.put()
    harness.call("rate", retry_after=-DAY)
    assert harness.provider().limited_until == clock.now + SECOND
    assert harness.claim() == []


def test_the_longest_of_several_waits_counts(harness: ProviderHarness, clock: Clock) -> None:
    harness.put(3)
    one, two, three = harness.claim()
    harness.finish(
        report(one, "rate", retry_after=5 * SECOND),
        report(two, "rate", retry_after=9 * SECOND),
    )
    harness.finish(report(three, "rate", retry_after=2 * SECOND))
    assert harness.provider().limited_until == clock.now + 9 * SECOND
    assert harness.noted() == ["RateLimited"]


def test_a_fallback_gets_no_more_than_its_rate(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("second")
    harness.lead("first", "second")
    limit(harness, 2, "second")
    harness.put(4)
    harness.call("transient", 4)
    assert [email.provider for email in harness.claim()] == ["second"] * 2
    assert harness.claim() == []
    clock.forward(SECOND)
    assert [email.provider for email in harness.claim()] == ["second"] * 2


def test_a_rate_limited_fallback_is_not_called(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("second")
    harness.lead("first", "second")
    harness.put()
    harness.call("transient")
    harness.alter("second", limited_until=clock.now + MINUTE, limited_by="rate")
    assert harness.claim() == []
    clock.forward(MINUTE)
    assert [email.provider for email in harness.claim()] == ["second"]


def test_the_largest_possible_limits_do_not_break_a_claim(harness: ProviderHarness) -> None:
    harness.put(3)
    harness.run("INSERT INTO mailgres.buckets VALUES ('calls:first', 1e18, 1e18)")
    harness.run("INSERT INTO mailgres.buckets VALUES ('tenant:default', 1e18, 1e18)")
    assert len(harness.claim()) == 3


def test_sleep_says_nothing_when_nothing_is_ready(harness: ProviderHarness, clock: Clock) -> None:
    harness.put(4)
    limit(harness, 2)
    harness.claim()
    assert harness.mark_asleep() == clock.now + SECOND / 2
    harness.run("DELETE FROM email_queue WHERE ready")
    assert harness.mark_asleep() is None


def test_workers_sleep_until_the_end_of_a_rate_limit(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put()
    harness.run("SELECT mailgres.pause_provider('first', %s)", clock.now + MINUTE)
    assert harness.mark_asleep() == clock.now + MINUTE
    harness.run("SELECT mailgres.pause_provider('first')")
    assert harness.mark_asleep() is None, "forever is not a time to look again"
    harness.run("SELECT mailgres.resume_provider('first')")
    harness.open_circuit()
    assert harness.mark_asleep() <= clock.now, "the email that opened it is to be promoted"
    assert harness.claim() == []
    assert harness.mark_asleep() == clock.now + 120 * SECOND


def frees_in(harness: ProviderHarness) -> timedelta | None:
    (row,) = harness.conn.execute(
        "SELECT mailgres.rate_limit_ends_at() - mailgres.now()"
    ).fetchall()
    wait: timedelta | None = row[0]
    return wait


def test_a_drain_knows_how_long_a_limit_makes_it_wait(harness: ProviderHarness) -> None:
    limit(harness, 4)
    assert frees_in(harness) is None, "nothing waits"
    harness.put(10)
    assert frees_in(harness) is None, "there are tokens"
    harness.claim(limit=50)
    assert frees_in(harness) == SECOND / 4


def test_a_drain_knows_what_a_provider_has_just_put_off(harness: ProviderHarness) -> None:
    harness.put(1)
    (email,) = harness.claim()
    harness.finish(report(email, "rate"))
    assert frees_in(harness) == 2 * SECOND


def test_a_drain_does_not_wait_for_a_retry(harness: ProviderHarness) -> None:
    harness.put(1)
    (email,) = harness.claim()
    harness.finish(report(email, "transient"))
    assert frees_in(harness) is None
