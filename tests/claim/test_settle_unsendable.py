"""What a claim meets and must not send is settled, and does not stand in its way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.harness import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.harness import ClaimHarness

HOUR = timedelta(hours=1)


def suppress(harness: ClaimHarness, address: str, tenant: str = "*") -> None:
    harness.do("INSERT INTO email_suppressions VALUES (%s, %s, 'manual')", address, tenant)


@pytest.mark.parametrize("tenant", ["*", "tenant"])
def test_a_suppressed_address_gets_nothing_and_its_email_is_cancelled(
    harness: ClaimHarness, tenant: str
) -> None:
    suppress(harness, "gone@example.com", tenant)
    [email] = harness.put(recipient_email="Gone@Example.com")
    assert harness.claim() == []
    row = harness.email(email)
    assert (row["status"], row["error_message"]) == (
        "cancelled",
        "the address is suppressed: manual",
    )
    assert harness.ask("SELECT event FROM email_logs WHERE queue_id = %s", email) == "cancelled"


def test_another_tenants_suppression_does_not_count(harness: ClaimHarness) -> None:
    suppress(harness, "gone@example.com", "another")
    email = harness.put(recipient_email="gone@example.com")
    assert ids(harness.claim()) == set(email)


@pytest.mark.parametrize("limit", [1, 10])
def test_suppressed_emails_in_front_do_not_empty_the_claim(
    harness: ClaimHarness, limit: int
) -> None:
    suppress(harness, "gone@example.com")
    gone = harness.put("a", 30, priority=1, recipient_email="gone@example.com")
    others = harness.put("b") + harness.put("a", priority=9)
    claimed = harness.claim(limit) + harness.claim(limit)
    assert ids(claimed) == set(others)
    harness.claim()
    assert {harness.email(email)["status"] for email in gone} == {"cancelled"}


def test_suppressed_emails_on_one_route_do_not_hide_another(harness: ClaimHarness) -> None:
    harness.add_route("second", "capture")
    suppress(harness, "gone@example.com")
    harness.put("a", 30, recipient_email="gone@example.com")
    other = harness.put("a", route="second")
    assert ids(harness.claim()) == set(other)


def test_an_expired_email_dies_and_the_next_is_claimed(harness: ClaimHarness) -> None:
    [expired] = harness.put(priority=1, expires_at=HOUR)
    other = harness.put(expires_at=2 * HOUR)
    travel(harness.connection, HOUR)
    assert ids(harness.claim()) == set(other)
    row = harness.email(expired)
    assert (row["status"], row["dead_reason"]) == ("failed", "expired")
    assert "expired" in row["error_message"]


def test_an_expired_email_dies_even_when_more_is_due_than_is_promoted(
    harness: ClaimHarness,
) -> None:
    harness.put("a", 1500, ready=False, next_retry_at=-HOUR, priority=9)
    [expired] = harness.put("a", priority=1, expires_at=-timedelta(seconds=1))
    assert harness.claim()
    row = harness.email(expired)
    assert (row["status"], row["dead_reason"]) == ("failed", "expired")


def test_what_expired_while_it_waited_for_its_time_is_not_promoted(harness: ClaimHarness) -> None:
    [expired] = harness.put(ready=False, next_retry_at=HOUR, expires_at=HOUR)
    travel(harness.connection, HOUR)
    assert harness.ask("SELECT mailgres.promote()") == 1
    assert harness.email(expired)["dead_reason"] == "expired"
