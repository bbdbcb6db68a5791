"""A clock of the server that went ahead and came back stops nothing for longer than it would have.

Times that were stored meanwhile lie in the future. What they limit counts anew from now.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from providers_state.harness import ACCOUNT, DAY, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import Clock

JUMPS = [2 * MINUTE, HOUR, DAY, 400 * DAY]


def back(clock: Clock, jump: timedelta) -> None:
    """Let the clock be right again, a moment later."""
    clock.forward(SECOND - jump)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize(
    "limit", ["limit_provider('first', 2, NULL, NULL)", "limit_tenant('default', 2)"]
)
def test_a_rate_limit_lets_emails_through_after_a_jump(
    harness: ProviderHarness, clock: Clock, jump: timedelta, limit: str
) -> None:
    harness.run(f"SELECT mailgres.{limit}")
    harness.put(20)
    clock.forward(jump)
    assert len(harness.claim()) == 2
    assert harness.claim() == []
    back(clock, jump)
    assert len(harness.claim()) == 2
    assert harness.claim() == [], "and no more than its limit"
    clock.forward(SECOND)
    assert len(harness.claim()) == 2


def test_a_claim_that_is_a_little_older_fills_no_bucket_twice(
    harness: ProviderHarness, clock: Clock
) -> None:
    """Its transaction began before the one that took the last tokens."""
    harness.run("SELECT mailgres.limit_provider('first', 2, NULL, NULL)")
    harness.put(20)
    assert len(harness.claim()) == 2
    clock.forward(-5 * SECOND)
    assert harness.claim() == []


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize(("outcome", "wait"), [("rate", 30 * SECOND), ("quota", 15 * MINUTE)])
def test_a_provider_that_asked_to_wait_is_used_again_after_a_jump(
    harness: ProviderHarness, clock: Clock, jump: timedelta, outcome: str, wait: timedelta
) -> None:
    harness.put(5)
    clock.forward(jump)
    harness.call(outcome, account=True, retry_after=wait)
    back(clock, jump)
    assert harness.claim() == []
    clock.forward(wait)
    assert len(harness.claim()) > 0


@pytest.mark.parametrize("jump", JUMPS)
def test_an_open_circuit_is_probed_after_a_jump(
    harness: ProviderHarness, clock: Clock, jump: timedelta
) -> None:
    harness.put(5)
    clock.forward(jump)
    harness.open_circuit()
    back(clock, jump)
    assert harness.claim() == []
    clock.forward(2 * MINUTE)
    (probe,) = harness.claim(limit=10)
    assert harness.circuit() == "half_open"
    harness.report_outcomes([probe], "sent")
    assert harness.circuit() == "closed"


@pytest.mark.parametrize("jump", JUMPS)
def test_a_probe_without_a_report_is_repeated_after_the_clock_jumped(
    harness: ProviderHarness, clock: Clock, jump: timedelta
) -> None:
    harness.put(5)
    harness.open_circuit()
    clock.forward(jump + 2 * MINUTE)
    assert len(harness.claim()) == 1
    back(clock, jump)
    assert harness.claim() == []
    harness.reap()
    clock.forward(61 * SECOND)
    assert len(harness.claim()) == 1


@pytest.mark.parametrize("jump", JUMPS)
def test_failures_of_the_future_do_not_open_a_circuit(
    harness: ProviderHarness, clock: Clock, jump: timedelta
) -> None:
    harness.put(30)
    clock.forward(jump)
    for _ in range(4):
        harness.call("transient", **ACCOUNT)
    harness.call("sent")
    back(clock, jump)
    clock.forward(10 * MINUTE)
    harness.put(10)
    harness.call("transient", **ACCOUNT)
    assert harness.circuit() == "closed"


@pytest.mark.parametrize("jump", JUMPS)
def test_the_emails_of_a_dead_worker_come_back_after_a_jump(
    harness: ProviderHarness, clock: Clock, jump: timedelta
) -> None:
    harness.put(3)
    clock.forward(jump)
    (one, *_) = harness.claim()
    back(clock, jump)
    assert harness.reap() == 0, "whoever lives has the length of a lease to report"
    assert harness.email(one.id).lease_until == clock.now + MINUTE
    clock.forward(61 * SECOND)
    assert harness.reap() == 3
    assert len(harness.claim_lost(3, "another")) == 3


def test_a_live_worker_keeps_its_emails_over_a_jump(harness: ProviderHarness, clock: Clock) -> None:
    harness.put(3)
    clock.forward(DAY)
    claimed = harness.claim()
    back(clock, DAY)
    harness.reap()
    assert {done.status for done in harness.report_outcomes(claimed, "sent")} == {"sent"}


def test_a_jump_is_noted_with_the_provider_that_it_stopped(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put()
    clock.forward(DAY)
    harness.call("rate", account=True)
    back(clock, DAY)
    harness.reap()
    assert harness.noted() == ["RateLimited", "ClockCorrected"]


def test_what_was_set_by_hand_for_a_later_time_stays(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.run("SELECT mailgres.pause_provider('first', %s)", clock.now + 10 * DAY)
    harness.put()
    harness.reap()
    assert harness.claim() == []
    assert harness.provider().paused_until == clock.now + 10 * DAY


@pytest.mark.parametrize("jump", JUMPS)
def test_notices_of_dead_letters_and_alerts_go_on_after_a_jump(
    harness: ProviderHarness, clock: Clock, jump: timedelta
) -> None:
    clock.forward(jump)
    harness.run(
        "INSERT INTO mailgres.notification_state (dead_letters_at, alerts_at)"
        " VALUES (mailgres.now(), mailgres.now()) ON CONFLICT (only_row)"
        " DO UPDATE SET dead_letters_at = excluded.dead_letters_at, alerts_at = excluded.alerts_at"
    )
    harness.run(
        "INSERT INTO mailgres.notifications (body, taken_until)"
        " VALUES ('{}', mailgres.now() + interval '1 minute')"
    )
    back(clock, jump)
    harness.reap()
    row = harness.row("SELECT dead_letters_at, alerts_at FROM mailgres.notification_state")
    assert max(row.dead_letters_at, row.alerts_at) <= clock.now
    assert (
        harness.value("SELECT max(taken_until) FROM mailgres.notifications")
        <= clock.now + 2 * MINUTE
    )
