"""When the backlog will be out: `mailgres.eta()`, and `mailgres eta` run as a program."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.program import Program
from support.queue import Clock, Queue

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 17, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FILL = """
    INSERT INTO email_queue (template_type, recipient_email, route, tenant_id, ready)
    SELECT 'welcome_user', 'ana@example.com', %s, %s, true FROM generate_series(1, %s)
"""


@pytest.fixture
def clock(queue: Queue) -> Clock:
    queue.use_provider("resend")
    return Clock(queue.conn, NOON)


@pytest.fixture
def eta(queue: Queue, clock: Clock) -> Callable[..., Any]:
    """Fill a route and estimate it."""
    assert clock.now == NOON

    def estimate(emails: int = 0, route: str = "default", tenant: str = "default") -> Any:
        queue.run(FILL, route, tenant, emails)
        return queue.row("SELECT * FROM mailgres.eta() WHERE route = %s", route)

    return estimate


def limit(queue: Queue, rate: float | None, daily: int | None, monthly: int | None) -> None:
    queue.run("SELECT mailgres.limit_provider('resend', %s, %s, %s)", rate, daily, monthly)


def used(queue: Queue, period: str, starts: datetime, emails: int) -> None:
    insert = "INSERT INTO mailgres.quota_usage VALUES ('resend', %s, %s, %s)"
    queue.run(insert, period, starts, emails)


def test_the_estimate_of_a_thousand_emails_at_a_hundred_a_day_is_nine_days(
    queue: Queue, eta: Callable[..., Any]
) -> None:
    """Nine days more: the last hundred leave on the tenth day."""
    limit(queue, None, 100, None)
    found = eta(1000)
    assert (found.emails, found.provider, found.why) == (1000, "resend", "quota")
    assert found.at == MIDNIGHT + 8 * DAY


def test_the_estimate_subtracts_what_was_sent_today(
    queue: Queue, eta: Callable[..., Any], clock: Clock
) -> None:
    limit(queue, None, 100, None)
    used(queue, "day", MIDNIGHT - DAY, 100)
    assert eta(1000).at == MIDNIGHT + 9 * DAY
    clock.forward(DAY)
    assert eta().at == MIDNIGHT + 9 * DAY


def test_the_estimate_respects_the_monthly_quota(queue: Queue, eta: Callable[..., Any]) -> None:
    """250 of November are left: 100, 100, 50; then December's."""
    limit(queue, None, 100, 3000)
    used(queue, "month", datetime(2026, 11, 1, tzinfo=UTC), 2750)
    assert eta(250).at == MIDNIGHT + DAY
    assert eta(1).at == datetime(2026, 12, 1, tzinfo=UTC)
    assert eta(3000).at > datetime(2026, 12, 30, tzinfo=UTC)


def test_the_estimate_respects_the_rate_limit(queue: Queue, eta: Callable[..., Any]) -> None:
    limit(queue, 2, None, None)
    found = eta(7200)
    assert (found.at, found.why) == (NOON + HOUR, "rate")
    queue.run("UPDATE mailgres.providers SET batch_size = 100 WHERE name = 'resend'")
    queue.run("SELECT mailgres.learn_limits('resend', 0.01, NULL, NULL, NULL)")
    assert eta().at == NOON + 2 * HOUR, "calls of a hundred emails, one every 100 s"


def test_the_estimate_respects_rate_and_quota_together(
    queue: Queue, eta: Callable[..., Any]
) -> None:
    limit(queue, 1, 3600, None)
    found = eta(5400)
    assert (found.at, found.why) == (MIDNIGHT + timedelta(seconds=1800), "quota")


def test_the_estimate_starts_after_a_pause(queue: Queue, eta: Callable[..., Any]) -> None:
    limit(queue, 1, None, None)
    queue.run("SELECT mailgres.pause_provider('resend', %s)", NOON + 2 * HOUR)
    found = eta(3600)
    assert (found.starts, found.at, found.why) == (NOON + 2 * HOUR, NOON + 3 * HOUR, "paused")
    queue.run("SELECT mailgres.pause_provider('resend')")
    found = eta()
    assert (found.starts, found.at, found.why) == (None, None, "paused")


def test_the_estimate_starts_after_an_open_circuit(queue: Queue, eta: Callable[..., Any]) -> None:
    limit(queue, 1, None, None)
    queue.run("SELECT mailgres.set_circuit('resend', 'open', 'down', NULL)")
    found = eta(60)
    assert (found.at, found.why) == (NOON + timedelta(seconds=180), "circuit")


def test_the_estimate_uses_the_next_usable_provider(queue: Queue, eta: Callable[..., Any]) -> None:
    queue.run("INSERT INTO mailgres.providers (name, kind) VALUES ('smtp', 'smtp')")
    queue.run("SELECT mailgres.set_route('default', '{resend,smtp}')")
    queue.run("SELECT mailgres.limit_provider('smtp', 1, NULL, NULL)")
    queue.run("SELECT mailgres.pause_provider('resend')")
    found = eta(3600)
    assert (found.provider, found.at, found.why) == ("smtp", NOON + HOUR, "rate")


def test_routes_of_one_provider_share_its_limit_in_the_estimate(
    queue: Queue, eta: Callable[..., Any]
) -> None:
    limit(queue, 1, None, None)
    queue.run("SELECT mailgres.set_route('bulk', '{resend}')")
    assert eta(1800, "bulk").at == NOON + HOUR / 2
    found = eta(1800)
    assert (found.emails, found.at) == (1800, NOON + HOUR)
    queue.run("SELECT mailgres.pause_route('bulk')")
    assert eta().at == NOON + HOUR / 2
    paused = eta(0, "bulk")
    assert (paused.at, paused.why) == (None, "route paused")


def test_the_estimate_respects_the_limit_of_a_tenant(queue: Queue, eta: Callable[..., Any]) -> None:
    limit(queue, 1, None, None)
    queue.run("SELECT mailgres.limit_tenant('acme', 0.1)")
    found = eta(361, tenant="acme")
    assert (found.at, found.why) == (NOON + HOUR, "rate of a tenant")


def test_without_limits_the_estimate_uses_recent_throughput(
    queue: Queue, eta: Callable[..., Any], clock: Clock
) -> None:
    found = eta(3)
    assert (found.at, found.why) == (None, "unknown")
    for email in queue.claim():
        reported = {"id": str(email.id), "token": str(email.lease_token), "outcome": "sent"}
        queue.finish({**reported, "provider_message_id": str(email.id)})
    clock.forward(timedelta(seconds=30))
    found = eta(60)
    assert (found.at, found.why) == (clock.now + timedelta(seconds=600), "throughput")
    clock.forward(HOUR)
    assert eta().why == "unknown"


def test_the_estimate_waits_for_scheduled_emails(queue: Queue, eta: Callable[..., Any]) -> None:
    limit(queue, 1, None, None)
    queue.enqueue(scheduled_for=NOON + 5 * DAY)
    found = eta(59)
    assert (found.emails, found.later, found.at, found.why) == (60, 1, NOON + 5 * DAY, "schedule")


def test_an_estimate_beyond_all_limits_says_why_there_is_none(
    queue: Queue, eta: Callable[..., Any]
) -> None:
    limit(queue, None, 1, None)
    found = eta(5000)
    assert (found.at, found.why) == (None, "quota")
    queue.run("UPDATE mailgres.providers SET enabled = false WHERE name = 'resend'")
    assert eta().why == "disabled"
    queue.run("DELETE FROM mailgres.route_providers")
    assert eta().why == "no provider"


def test_eta_prints_the_time_and_its_reason(
    mailgres: Program, queue: Queue, eta: Callable[..., Any]
) -> None:
    assert mailgres.run("eta").stderr == "No email is pending.\n"
    assert mailgres.json("eta") == []
    limit(queue, None, 100, None)
    queue.enqueue(scheduled_for=NOON + HOUR)
    eta(999)
    why = "by the quota of resend; 1 of them not due yet"
    assert mailgres("eta").splitlines() == [
        "route    emails  sent at                  reason",
        f"default  1000    2026-11-25 00:00:00 UTC  {why}",
    ]
    (found,) = mailgres.json("eta", PGOPTIONS="-c role=mailgres_operator")
    assert found["at"].startswith("2026-11-25T00:00:00")
    queue.run("SELECT mailgres.pause_route('default')")
    assert "unknown  the route is paused" in mailgres("eta")
