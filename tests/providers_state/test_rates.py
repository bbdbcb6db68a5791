"""Rate limits that all workers share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers_state.stage import DAY, HOUR, MINUTE, SECOND, Stage, batches
from support.queue import Clock, report


def limit(stage: Stage, per_second: float, name: str = "first") -> None:
    stage.run("SELECT mailgres.limit_provider(%s, %s, NULL, NULL)", name, per_second)


def limit_calls(stage: Stage, per_second: float, name: str = "first") -> None:
    stage.run("SELECT mailgres.learn_limits(%s, %s, NULL, NULL, NULL)", name, per_second)


def test_as_many_as_a_second_brings_at_once_and_then_as_they_come(
    stage: Stage, clock: Clock
) -> None:
    stage.put(100)
    limit(stage, 4)
    assert len(stage.claim(limit=50)) == 4
    assert stage.claim(limit=50) == []
    clock.forward(SECOND / 2)
    assert len(stage.claim(limit=50)) == 2
    clock.forward(HOUR)
    assert len(stage.claim(limit=50)) == 4


def test_less_than_one_a_second(stage: Stage, clock: Clock) -> None:
    stage.put(10)
    limit(stage, 0.5)
    assert len(stage.claim()) == 1
    clock.forward(SECOND)
    assert stage.claim() == []
    clock.forward(SECOND)
    assert len(stage.claim()) == 1


steps = st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 40)), min_size=1, max_size=25)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rate=st.sampled_from([0.3, 1, 2, 5.5, 20]), batch=st.sampled_from([1, 10]), steps=steps)
def test_never_more_calls_than_the_limit_in_any_window(
    stage: Stage, clock: Clock, rate: float, batch: int, steps: list[tuple[int, int]]
) -> None:
    with stage.conn.transaction(force_rollback=True):
        stage.alter("first", batch_size=batch, fixed_batches=batch > 1)
        stage.put(sum(wanted for _, wanted in steps))
        limit_calls(stage, rate)
        calls: list[tuple[timedelta, int]] = []
        passed = timedelta()
        for milliseconds, wanted in steps:
            step = timedelta(milliseconds=milliseconds)
            passed += step
            clock.forward(step)
            calls.append((passed, len(batches(stage.claim(limit=wanted)))))
    for start, (begins, _) in enumerate(calls):
        made = 0
        for ends, count in calls[start:]:
            made += count
            assert made <= max(rate, 1) + rate * (ends - begins).total_seconds() + 1e-6


def test_a_batch_is_one_call(stage: Stage, clock: Clock) -> None:
    stage.add("batches", batch=100)
    stage.lead("batches")
    limit_calls(stage, 2, "batches")
    stage.put(1000)
    assert [len(call) for call in batches(stage.claim(limit=1000))] == [100, 100]
    clock.forward(SECOND / 2)
    assert [len(call) for call in batches(stage.claim(limit=1000))] == [100]


def test_urgent_emails_go_alone_and_take_every_other_call(stage: Stage, clock: Clock) -> None:
    stage.add("batches", batch=100)
    stage.lead("batches")
    limit_calls(stage, 4, "batches")
    stage.put(300)
    stage.put(50, priority=1)
    for _ in range(3):
        sizes = [len(call) for call in batches(stage.claim(limit=300))]
        assert sizes[2:] == [1, 1]
        assert min(sizes[:2]) > 20
        stage.run("UPDATE email_queue SET status = 'pending', ready = true WHERE priority > 2")
        clock.forward(SECOND)


def test_a_provider_of_plain_batches_counts_calls_by_their_size(stage: Stage) -> None:
    stage.add("plain", keys=False, batch=10)
    stage.lead("plain")
    limit_calls(stage, 2, "plain")
    stage.put(100)
    assert len(stage.claim(limit=100)) == 20


def test_both_limits_hold(stage: Stage, clock: Clock) -> None:
    stage.add("batches", batch=100)
    stage.lead("batches")
    limit_calls(stage, 2, "batches")
    limit(stage, 150, "batches")
    stage.put(500)
    assert [len(call) for call in batches(stage.claim(limit=500))] == [100, 50]
    clock.forward(SECOND)
    assert len(stage.claim(limit=500)) == 150


def test_a_limit_for_a_tenant_holds_and_does_not_touch_the_others(
    stage: Stage, clock: Clock
) -> None:
    stage.run("SELECT mailgres.limit_tenant('loud', 2)")
    stage.put(50, tenant_id="loud")
    stage.put(50, tenant_id="calm")
    seen: list[Any] = []
    for _ in range(5):
        seen += stage.claim(limit=10)
    tenants = [email.tenant_id for email in seen]
    assert (tenants.count("loud"), tenants.count("calm")) == (2, 48)
    stage.claim()
    assert stage.claim() == []
    assert stage.sleep() == clock.now + SECOND / 2
    clock.forward(SECOND)
    assert [email.tenant_id for email in stage.claim()] == ["loud", "loud"]
    stage.run("SELECT mailgres.limit_tenant('loud', NULL)")
    assert len(stage.claim()) == 10


@pytest.mark.parametrize(("told", "wait"), [({}, 2 * SECOND), ({"retry_after": 30}, 30 * SECOND)])
def test_told_to_slow_down_the_route_waits_with_its_provider(
    stage: Stage, clock: Clock, told: dict[str, Any], wait: timedelta
) -> None:
    stage.add("second")
    stage.lead("first", "second")
    stage.put(5)
    (email,) = stage.call("rate", account=True, **told)
    provider = stage.provider()
    assert (provider.waits_until, provider.waits_for) == (clock.now + wait, "rate")
    after = stage.email(email.id)
    assert (after.retries, after.next_retry_at) == (0, clock.now + wait)
    assert stage.claim() == []
    assert stage.sleep() == clock.now + wait
    clock.forward(wait)
    assert {email.provider for email in stage.claim()} == {"first"}
    assert stage.noted() == ["RateLimited"]


def test_a_time_that_is_over_is_not_taken_for_a_wait(stage: Stage, clock: Clock) -> None:
    """Its clock is behind ours."""
    stage.put()
    stage.call("rate", retry_after=-DAY)
    assert stage.provider().waits_until == clock.now + SECOND
    assert stage.claim() == []


def test_the_longest_of_several_waits_counts(stage: Stage, clock: Clock) -> None:
    stage.put(3)
    one, two, three = stage.claim()
    stage.finish(
        report(one, "rate", retry_after=5 * SECOND),
        report(two, "rate", retry_after=9 * SECOND),
    )
    stage.finish(report(three, "rate", retry_after=2 * SECOND))
    assert stage.provider().waits_until == clock.now + 9 * SECOND
    assert stage.noted() == ["RateLimited"]


def test_a_stand_in_gets_no_more_than_it_takes(stage: Stage, clock: Clock) -> None:
    stage.add("second")
    stage.lead("first", "second")
    limit(stage, 2, "second")
    stage.put(4)
    stage.call("transient", 4)
    assert [email.provider for email in stage.claim()] == ["second"] * 2
    assert stage.claim() == []
    clock.forward(SECOND)
    assert [email.provider for email in stage.claim()] == ["second"] * 2


def test_a_stand_in_that_was_told_to_wait_is_not_called(stage: Stage, clock: Clock) -> None:
    stage.add("second")
    stage.lead("first", "second")
    stage.put()
    stage.call("transient")
    stage.alter("second", waits_until=clock.now + MINUTE, waits_for="rate")
    assert stage.claim() == []
    clock.forward(MINUTE)
    assert [email.provider for email in stage.claim()] == ["second"]


def test_limits_as_large_as_numbers_get(stage: Stage) -> None:
    stage.put(3)
    stage.run("INSERT INTO mailgres.buckets VALUES ('calls:first', 1e18, 1e18)")
    stage.run("INSERT INTO mailgres.buckets VALUES ('tenant:default', 1e18, 1e18)")
    assert len(stage.claim()) == 3


def test_sleep_says_nothing_when_nothing_is_ready(stage: Stage, clock: Clock) -> None:
    stage.put(4)
    limit(stage, 2)
    stage.claim()
    assert stage.sleep() == clock.now + SECOND / 2
    stage.run("DELETE FROM email_queue WHERE ready")
    assert stage.sleep() is None


def test_sleep_knows_when_pauses_end(stage: Stage, clock: Clock) -> None:
    stage.put()
    stage.run("SELECT mailgres.pause_provider('first', %s)", clock.now + MINUTE)
    assert stage.sleep() == clock.now + MINUTE
    stage.run("SELECT mailgres.pause_provider('first')")
    assert stage.sleep() is None, "for ever is no time to look again"
    stage.run("SELECT mailgres.resume_provider('first')")
    stage.open_circuit()
    assert stage.sleep() <= clock.now, "the email that opened it is to be promoted"
    assert stage.claim() == []
    assert stage.sleep() == clock.now + 120 * SECOND


def frees_in(stage: Stage) -> timedelta | None:
    (row,) = stage.conn.execute("SELECT mailgres.rate_frees_at() - mailgres.now()").fetchall()
    wait: timedelta | None = row[0]
    return wait


def test_a_drain_knows_how_long_a_limit_makes_it_wait(stage: Stage) -> None:
    limit(stage, 4)
    assert frees_in(stage) is None, "nothing waits"
    stage.put(10)
    assert frees_in(stage) is None, "there are tokens"
    stage.claim(limit=50)
    assert frees_in(stage) == SECOND / 4


def test_a_drain_knows_what_a_provider_has_just_put_off(stage: Stage) -> None:
    stage.put(1)
    (email,) = stage.claim()
    stage.finish(report(email, "rate"))
    assert frees_in(stage) == 2 * SECOND


def test_a_drain_does_not_wait_for_a_retry(stage: Stage) -> None:
    stage.put(1)
    (email,) = stage.claim()
    stage.finish(report(email, "transient"))
    assert frees_in(stage) is None
