"""A clock of the server that went ahead and came back stops nothing for longer than it would have.

Times that were stored meanwhile lie in the future. What they limit counts anew from now.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from providers_state.stage import ACCOUNT, DAY, HOUR, MINUTE, SECOND, Stage
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
    stage: Stage, clock: Clock, jump: timedelta, limit: str
) -> None:
    stage.run(f"SELECT mailgres.{limit}")
    stage.put(20)
    clock.forward(jump)
    assert len(stage.claim()) == 2
    assert stage.claim() == []
    back(clock, jump)
    assert len(stage.claim()) == 2
    assert stage.claim() == [], "and no more than its limit"
    clock.forward(SECOND)
    assert len(stage.claim()) == 2


def test_a_claim_that_is_a_little_older_fills_no_bucket_twice(stage: Stage, clock: Clock) -> None:
    """Its transaction began before the one that took the last tokens."""
    stage.run("SELECT mailgres.limit_provider('first', 2, NULL, NULL)")
    stage.put(20)
    assert len(stage.claim()) == 2
    clock.forward(-5 * SECOND)
    assert stage.claim() == []


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize(("outcome", "wait"), [("rate", 30 * SECOND), ("quota", 15 * MINUTE)])
def test_a_provider_that_asked_to_wait_is_used_again_after_a_jump(
    stage: Stage, clock: Clock, jump: timedelta, outcome: str, wait: timedelta
) -> None:
    stage.put(5)
    clock.forward(jump)
    stage.call(outcome, account=True, retry_after=wait)
    back(clock, jump)
    assert stage.claim() == []
    clock.forward(wait)
    assert len(stage.claim()) > 0


@pytest.mark.parametrize("jump", JUMPS)
def test_an_open_circuit_is_probed_after_a_jump(
    stage: Stage, clock: Clock, jump: timedelta
) -> None:
    stage.put(5)
    clock.forward(jump)
    stage.open_circuit()
    back(clock, jump)
    assert stage.claim() == []
    clock.forward(2 * MINUTE)
    (probe,) = stage.claim(limit=10)
    assert stage.circuit() == "half_open"
    stage.tell([probe], "sent")
    assert stage.circuit() == "closed"


@pytest.mark.parametrize("jump", JUMPS)
def test_a_probe_of_which_nothing_was_heard_is_made_again_after_a_jump(
    stage: Stage, clock: Clock, jump: timedelta
) -> None:
    stage.put(5)
    stage.open_circuit()
    clock.forward(jump + 2 * MINUTE)
    assert len(stage.claim()) == 1
    back(clock, jump)
    assert stage.claim() == []
    stage.reap()
    clock.forward(61 * SECOND)
    assert len(stage.claim()) == 1


@pytest.mark.parametrize("jump", JUMPS)
def test_failures_of_the_future_do_not_open_a_circuit(
    stage: Stage, clock: Clock, jump: timedelta
) -> None:
    stage.put(30)
    clock.forward(jump)
    for _ in range(4):
        stage.call("transient", **ACCOUNT)
    stage.call("sent")
    back(clock, jump)
    clock.forward(10 * MINUTE)
    stage.put(10)
    stage.call("transient", **ACCOUNT)
    assert stage.circuit() == "closed"


@pytest.mark.parametrize("jump", JUMPS)
def test_the_emails_of_a_dead_worker_come_back_after_a_jump(
    stage: Stage, clock: Clock, jump: timedelta
) -> None:
    stage.put(3)
    clock.forward(jump)
    (one, *_) = stage.claim()
    back(clock, jump)
    assert stage.reap() == 0, "whoever lives has the length of a lease to report"
    assert stage.email(one.id).lease_until == clock.now + MINUTE
    clock.forward(61 * SECOND)
    assert stage.reap() == 3
    assert len(stage.claim_lost(3, "another")) == 3


def test_a_live_worker_keeps_its_emails_over_a_jump(stage: Stage, clock: Clock) -> None:
    stage.put(3)
    clock.forward(DAY)
    claimed = stage.claim()
    back(clock, DAY)
    stage.reap()
    assert {done.status for done in stage.tell(claimed, "sent")} == {"sent"}


def test_a_jump_is_noted_with_the_provider_that_it_stopped(stage: Stage, clock: Clock) -> None:
    stage.put()
    clock.forward(DAY)
    stage.call("rate", account=True)
    back(clock, DAY)
    stage.reap()
    assert stage.noted() == ["RateLimited", "ClockCorrected"]


def test_what_was_set_by_hand_for_a_later_time_stays(stage: Stage, clock: Clock) -> None:
    stage.run("SELECT mailgres.pause_provider('first', %s)", clock.now + 10 * DAY)
    stage.put()
    stage.reap()
    assert stage.claim() == []
    assert stage.provider().paused_until == clock.now + 10 * DAY


@pytest.mark.parametrize("jump", JUMPS)
def test_notices_of_dead_letters_and_alerts_go_on_after_a_jump(
    stage: Stage, clock: Clock, jump: timedelta
) -> None:
    clock.forward(jump)
    stage.run(
        "INSERT INTO mailgres.notices AS n (audience, told_at, alerts_at)"
        " VALUES ('operators', mailgres.now(), mailgres.now()) ON CONFLICT (audience)"
        " DO UPDATE SET told_at = excluded.told_at, alerts_at = excluded.alerts_at"
    )
    stage.run(
        "INSERT INTO mailgres.news (body, taken_until)"
        " VALUES ('{}', mailgres.now() + interval '1 minute')"
    )
    back(clock, jump)
    stage.reap()
    row = stage.row("SELECT told_at, alerts_at FROM mailgres.notices WHERE audience = 'operators'")
    assert max(row.told_at, row.alerts_at) <= clock.now
    assert stage.value("SELECT max(taken_until) FROM mailgres.news") <= clock.now + 2 * MINUTE
