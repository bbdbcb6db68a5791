"""Outages as a quiet project sees them, by the moved clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from providers_state.harness import ACCOUNT, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import Clock

Answer = Callable[[datetime], dict[str, Any]]


def live(
    harness: ProviderHarness, clock: Clock, lasts: timedelta, answer: Answer
) -> list[datetime]:
    """One email every five minutes, and a worker that looks every 15 seconds.

    Returns when it called the provider.
    """
    begins, calls = clock.now, []
    while clock.now < begins + lasts:
        if (clock.now - begins) % (5 * MINUTE) == 0 * SECOND:
            harness.enqueue()
        while claimed := harness.claim():
            calls += [clock.now] * len(claimed)
            harness.report_outcomes(claimed, **answer(clock.now))
        clock.forward(15 * SECOND)
    return calls


def test_a_quiet_outage_of_two_hours_kills_at_most_one_email(
    harness: ProviderHarness, clock: Clock
) -> None:
    back = clock.now + 2 * HOUR
    calls = live(
        harness,
        clock,
        3 * HOUR,
        lambda now: {"outcome": "sent"} if now >= back else {"outcome": "transient", **ACCOUNT},
    )
    assert harness.statuses()["failed"] <= 1
    assert harness.statuses()["pending"] == 0
    assert harness.circuit() == "closed"
    assert harness.noted().count("CircuitBreakerClosed") == 1
    closed = next(note.at for note in harness.notes() if note.event == "CircuitBreakerClosed")
    assert [at for at in calls if back <= at <= closed][:2] == [closed, closed]
    hammered = [at for at in calls if at < back]
    assert len(hammered) <= 12, "a provider that is down is left alone"


def test_a_wrong_key_for_an_hour_harms_no_email(harness: ProviderHarness, clock: Clock) -> None:
    fixed = clock.now + HOUR
    wrong = {"outcome": "config", "code": "invalid_api_key", "account": True}
    live(harness, clock, HOUR, lambda _: wrong)
    waiting = harness.all()
    assert len(waiting) == 12
    assert {(e.status, e.retries, e.parked_since) for e in waiting} == {("pending", 0, None)}
    live(harness, clock, HOUR, lambda now: {"outcome": "sent"} if now >= fixed else wrong)
    assert harness.statuses() == {"sent": 24}
