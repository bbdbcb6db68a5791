"""Quotas of a day and of a month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from providers_state.harness import DAY, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import Clock

NOON = datetime(2027, 3, 10, 12, tzinfo=UTC)
MIDNIGHT = datetime(2027, 3, 11, tzinfo=UTC)
APRIL = datetime(2027, 4, 1, tzinfo=UTC)


def limit(harness: ProviderHarness, daily: int | None, monthly: int | None = None) -> None:
    harness.run("SELECT mailgres.limit_provider('first', NULL, %s, %s)", daily, monthly)


def drain(harness: ProviderHarness, **claim: Any) -> int:
    """Send all that may be sent now."""
    sent = 0
    while claimed := harness.claim(**claim):
        harness.report_outcomes(claimed, "sent")
        sent += len(claimed)
    return sent


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize(
    ("quotas", "ends"), [((5, None), MIDNIGHT), ((None, 5), APRIL), ((5, 5), APRIL)]
)
def test_emails_beyond_a_quota_wait_for_the_next_day_or_month(
    harness: ProviderHarness, clock: Clock, zone: str, quotas: tuple[int, int], ends: datetime
) -> None:
    clock.set(NOON)
    harness.run(f"SET LOCAL timezone = '{zone}'")
    limit(harness, *quotas)
    harness.put(20)
    assert drain(harness) == 5
    provider = harness.provider()
    assert (provider.limited_until, provider.limited_by) == (ends, "quota")
    assert harness.mark_asleep() == ends
    assert "QuotaReached" in harness.noted()
    clock.set(ends - SECOND)
    assert harness.claim() == []
    clock.set(ends)
    assert drain(harness) == 5


def test_a_daily_quota_resets_correctly_over_the_change_to_summer_time(
    harness: ProviderHarness, clock: Clock
) -> None:
    clock.set(datetime(2027, 3, 14, 12, tzinfo=UTC))
    harness.run("SET LOCAL timezone = 'America/New_York'")
    limit(harness, 1)
    harness.put(2)
    drain(harness)
    assert harness.provider().limited_until == datetime(2027, 3, 15, tzinfo=UTC)


def test_claimed_emails_count_against_the_quota(harness: ProviderHarness, clock: Clock) -> None:
    clock.set(NOON)
    limit(harness, 10)
    harness.put(30)
    claimed = harness.claim(limit=7)
    assert len(harness.claim(limit=7)) == 3
    assert harness.claim() == []
    harness.report_outcomes(claimed[:2], "permanent")
    assert len(harness.claim()) == 2
    assert harness.provider().limited_until is None


def test_a_thousand_emails_at_a_hundred_a_day_take_ten_days(
    harness: ProviderHarness, clock: Clock
) -> None:
    clock.set(NOON)
    limit(harness, 100)
    harness.put(1000)
    days = []
    while harness.statuses()["sent"] < 1000:
        days.append(drain(harness, limit=300))
        clock.set(datetime(clock.now.year, clock.now.month, clock.now.day, tzinfo=UTC) + DAY)
    assert days == [100] * 10
    assert harness.statuses() == {"sent": 1000}
    assert {email.retries for email in harness.all()} == {0}


def test_emails_wait_for_a_quota_that_only_the_provider_knows(
    harness: ProviderHarness, clock: Clock
) -> None:
    clock.set(NOON)
    harness.put(250)
    for _ in range(3):
        assert sum(len(harness.call("sent", 10)) for _ in range(10 if clock.now < MIDNIGHT else 5))
        if harness.statuses()["pending"]:
            tomorrow = datetime(2027, 3, clock.now.day, tzinfo=UTC) + DAY
            harness.call("quota", 10, retry_after=tomorrow - clock.now)
            assert harness.claim() == []
            clock.set(tomorrow)
    assert set(harness.statuses()) <= {"sent", "pending"}
    assert {email.retries for email in harness.all()} == {0}


def test_a_used_up_quota_uses_the_fallback(harness: ProviderHarness, clock: Clock) -> None:
    harness.add("second")
    harness.lead("first", "second")
    harness.put(5)
    (email,) = harness.call("quota", retry_after=HOUR)
    assert harness.email(email.id).next_retry_at == clock.now
    assert {email.provider for email in harness.call("sent", 5)} == {"second"}
    clock.forward(HOUR)
    harness.put()
    assert {email.provider for email in harness.claim()} == {"first"}


def test_a_quota_without_a_reset_time_is_checked_again_after_15_minutes(
    harness: ProviderHarness, clock: Clock
) -> None:
    harness.put()
    harness.call("quota")
    assert harness.provider().limited_until == clock.now + 15 * MINUTE


def test_the_usage_that_a_provider_reports_counts(harness: ProviderHarness, clock: Clock) -> None:
    clock.set(NOON)
    harness.put(20)
    harness.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 93)")
    assert len(harness.claim(limit=20)) == 7
    harness.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 90)")
    assert len(harness.claim(limit=20)) == 3, "fewer than it said before: its word counts"


def test_the_fallback_is_used_when_others_used_up_the_quota(
    harness: ProviderHarness, clock: Clock
) -> None:
    clock.set(NOON)
    harness.add("second")
    harness.lead("first", "second")
    harness.put(2)
    harness.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 100)")
    assert harness.provider().limited_until == NOON + HOUR
    assert {email.provider for email in harness.claim()} == {"second"}


def test_reported_usage_counts_for_an_hour(harness: ProviderHarness, clock: Clock) -> None:
    """Its day may be the last 24 hours, or end at a midnight of its own."""
    clock.set(NOON)
    harness.put(120)
    harness.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 95)")
    assert drain(harness, limit=50) == 5
    assert harness.provider().limited_until == NOON + HOUR
    clock.forward(HOUR)
    assert len(harness.call("sent", 1)) == 1
    harness.run("SELECT mailgres.learn_limits('first', NULL, 100, NULL, 100)")
    assert (harness.claim(), harness.provider().limited_until) == ([], NOON + 2 * HOUR)
    clock.forward(HOUR)
    assert drain(harness, limit=50) == 94, "what we sent ourselves counts all day"
    assert harness.provider().limited_until == MIDNIGHT


def test_a_reset_does_not_make_room_in_a_quota(harness: ProviderHarness, clock: Clock) -> None:
    clock.set(NOON)
    harness.add("second")
    harness.lead("first", "second")
    limit(harness, 1)
    harness.put(2)
    assert {email.provider for email in harness.call("sent", 1)} == {"first"}
    harness.run("SELECT mailgres.reset_provider('first')")
    assert harness.provider().limited_until == MIDNIGHT
    assert {email.provider for email in harness.claim()} == {"second"}


def test_a_higher_quota_ends_the_wait_and_a_lower_one_begins_it(
    harness: ProviderHarness, clock: Clock
) -> None:
    clock.set(NOON)
    limit(harness, 5)
    harness.put(20)
    assert drain(harness) == 5
    limit(harness, 8)
    assert drain(harness) == 3
    limit(harness, None)
    assert len(harness.claim(limit=2)) == 2
    limit(harness, 4)
    assert (harness.claim(), harness.provider().limited_until) == ([], MIDNIGHT)


@pytest.mark.parametrize(
    "order",
    ["SELECT mailgres.reset_provider('first')", "SELECT mailgres.limit_provider('first', 9, 9, 9)"],
)
def test_a_larger_plan_releases_emails_that_wait_for_the_quota(
    harness: ProviderHarness, clock: Clock, order: str
) -> None:
    """They wait for the next month; only the operator knows about the new plan."""
    clock.set(NOON)
    ids = harness.put(3)
    harness.call("quota", 2, retry_after=APRIL - clock.now)
    scheduled = harness.enqueue(scheduled_for=NOON + HOUR)
    harness.run(order)
    assert {email.id for email in harness.claim()} == set(ids)
    assert harness.email(scheduled).next_retry_at == NOON + HOUR
