"""Quotas of a day and of a month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from providers_state.stage import DAY, HOUR, MINUTE, SECOND, Stage
from support.queue import Clock

NOON = datetime(2027, 3, 10, 12, tzinfo=UTC)
MIDNIGHT = datetime(2027, 3, 11, tzinfo=UTC)
APRIL = datetime(2027, 4, 1, tzinfo=UTC)


def limit(stage: Stage, daily: int | None, monthly: int | None = None) -> None:
    stage.run("SELECT mailgres.limit_provider('first', NULL, %s, %s)", daily, monthly)


def drain(stage: Stage, **claim: Any) -> int:
    """Send all that may be sent now."""
    sent = 0
    while claimed := stage.claim(**claim):
        stage.tell(claimed, "sent")
        sent += len(claimed)
    return sent


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize(
    ("quotas", "ends"), [((5, None), MIDNIGHT), ((None, 5), APRIL), ((5, 5), APRIL)]
)
def test_used_up_it_waits_for_the_next_day_or_month(
    stage: Stage, clock: Clock, zone: str, quotas: tuple[int, int], ends: datetime
) -> None:
    clock.set(NOON)
    stage.run(f"SET LOCAL timezone = '{zone}'")
    limit(stage, *quotas)
    stage.put(20)
    assert drain(stage) == 5
    provider = stage.provider()
    assert (provider.waits_until, provider.waits_for) == (ends, "quota")
    assert stage.sleep() == ends
    assert "QuotaReached" in stage.noted()
    clock.set(ends - SECOND)
    assert stage.claim() == []
    clock.set(ends)
    assert drain(stage) == 5


def test_over_the_change_to_summer_time(stage: Stage, clock: Clock) -> None:
    clock.set(datetime(2027, 3, 14, 12, tzinfo=UTC))
    stage.run("SET LOCAL timezone = 'America/New_York'")
    limit(stage, 1)
    stage.put(2)
    drain(stage)
    assert stage.provider().waits_until == datetime(2027, 3, 15, tzinfo=UTC)


def test_what_is_on_its_way_counts(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    limit(stage, 10)
    stage.put(30)
    claimed = stage.claim(limit=7)
    assert len(stage.claim(limit=7)) == 3
    assert stage.claim() == []
    stage.tell(claimed[:2], "permanent")
    assert len(stage.claim()) == 2
    assert stage.provider().waits_until is None


def test_a_thousand_emails_at_a_hundred_a_day_take_ten_days(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    limit(stage, 100)
    stage.put(1000)
    days = []
    while stage.statuses()["sent"] < 1000:
        days.append(drain(stage, limit=300))
        clock.set(datetime(clock.now.year, clock.now.month, clock.now.day, tzinfo=UTC) + DAY)
    assert days == [100] * 10
    assert stage.statuses() == {"sent": 1000}
    assert {email.retries for email in stage.all()} == {0}


def test_also_when_only_the_provider_knows_the_quota(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    stage.put(250)
    for _ in range(3):
        assert sum(len(stage.call("sent", 10)) for _ in range(10 if clock.now < MIDNIGHT else 5))
        if stage.statuses()["pending"]:
            tomorrow = datetime(2027, 3, clock.now.day, tzinfo=UTC) + DAY
            stage.call("quota", 10, retry_after=tomorrow - clock.now)
            assert stage.claim() == []
            clock.set(tomorrow)
    assert set(stage.statuses()) <= {"sent", "pending"}
    assert {email.retries for email in stage.all()} == {0}


def test_a_quota_lets_the_next_provider_stand_in(stage: Stage, clock: Clock) -> None:
    stage.add("second")
    stage.lead("first", "second")
    stage.put(5)
    (email,) = stage.call("quota", retry_after=HOUR)
    assert stage.email(email.id).next_retry_at == clock.now
    assert {email.provider for email in stage.call("sent", 5)} == {"second"}
    clock.forward(HOUR)
    stage.put()
    assert {email.provider for email in stage.claim()} == {"first"}


def test_without_a_time_it_looks_again_in_a_quarter_of_an_hour(stage: Stage, clock: Clock) -> None:
    stage.put()
    stage.call("quota")
    assert stage.provider().waits_until == clock.now + 15 * MINUTE


def test_the_provider_says_what_was_sent_today(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    stage.put(20)
    stage.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 93)")
    assert len(stage.claim(limit=20)) == 7
    stage.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 90)")
    assert len(stage.claim(limit=20)) == 3, "fewer than it said before: its word counts"


def test_used_up_by_others_another_provider_stands_in(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    stage.add("second")
    stage.lead("first", "second")
    stage.put(2)
    stage.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 100)")
    assert stage.provider().waits_until == NOON + HOUR
    assert {email.provider for email in stage.claim()} == {"second"}


def test_what_it_said_is_believed_for_an_hour(stage: Stage, clock: Clock) -> None:
    """Its day may be the last 24 hours, or end at a midnight of its own."""
    clock.set(NOON)
    stage.put(120)
    stage.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 95)")
    assert drain(stage, limit=50) == 5
    assert stage.provider().waits_until == NOON + HOUR
    clock.forward(HOUR)
    assert len(stage.call("sent", 1)) == 1
    stage.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 100)")
    assert (stage.claim(), stage.provider().waits_until) == ([], NOON + 2 * HOUR)
    clock.forward(HOUR)
    assert drain(stage, limit=50) == 94, "what we sent ourselves counts all day"
    assert stage.provider().waits_until == MIDNIGHT


def test_a_reset_does_not_make_room_in_a_quota(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    stage.add("second")
    stage.lead("first", "second")
    limit(stage, 1)
    stage.put(2)
    assert {email.provider for email in stage.call("sent", 1)} == {"first"}
    stage.run("SELECT mailgres.reset_provider('first')")
    assert stage.provider().waits_until == MIDNIGHT
    assert {email.provider for email in stage.claim()} == {"second"}


def test_a_higher_quota_ends_the_wait_and_a_lower_one_begins_it(stage: Stage, clock: Clock) -> None:
    clock.set(NOON)
    limit(stage, 5)
    stage.put(20)
    assert drain(stage) == 5
    limit(stage, 8)
    assert drain(stage) == 3
    limit(stage, None)
    assert len(stage.claim(limit=2)) == 2
    limit(stage, 4)
    assert (stage.claim(), stage.provider().waits_until) == ([], MIDNIGHT)


@pytest.mark.parametrize(
    "order",
    ["SELECT mailgres.reset_provider('first')", "SELECT mailgres.limit_provider('first', 9, 9, 9)"],
)
def test_a_larger_plan_frees_those_that_were_told_to_wait(
    stage: Stage, clock: Clock, order: str
) -> None:
    """They were told to wait for the next month; nobody else knows that it is over."""
    clock.set(NOON)
    ids = stage.put(3)
    stage.call("quota", 2, retry_after=APRIL - clock.now)
    scheduled = stage.enqueue(scheduled_for=NOON + HOUR)
    stage.run(order)
    assert {email.id for email in stage.claim()} == set(ids)
    assert stage.email(scheduled).next_retry_at == NOON + HOUR
