"""What a claim meets and must not send is settled, and does not stand in its way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.workbench import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.workbench import Workbench

HOUR = timedelta(hours=1)


def suppress(bench: Workbench, address: str, tenant: str = "*") -> None:
    bench.do("INSERT INTO email_suppressions VALUES (%s, %s, 'manual')", address, tenant)


@pytest.mark.parametrize("tenant", ["*", "tenant"])
def test_a_suppressed_address_gets_nothing_and_its_email_is_cancelled(
    bench: Workbench, tenant: str
) -> None:
    suppress(bench, "gone@example.com", tenant)
    [email] = bench.put(recipient_email="Gone@Example.com")
    assert bench.claim() == []
    row = bench.email(email)
    assert (row["status"], row["error_message"]) == ("cancelled", "the address is suppressed")
    assert bench.ask("SELECT event FROM email_logs WHERE queue_id = %s", email) == "cancelled"


def test_another_tenants_suppression_does_not_count(bench: Workbench) -> None:
    suppress(bench, "gone@example.com", "another")
    email = bench.put(recipient_email="gone@example.com")
    assert ids(bench.claim()) == set(email)


@pytest.mark.parametrize("limit", [1, 10])
def test_suppressed_emails_in_front_do_not_empty_the_claim(bench: Workbench, limit: int) -> None:
    suppress(bench, "gone@example.com")
    gone = bench.put("a", 30, priority=1, recipient_email="gone@example.com")
    others = bench.put("b") + bench.put("a", priority=9)
    claimed = bench.claim(limit) + bench.claim(limit)
    assert ids(claimed) == set(others)
    bench.claim()
    assert {bench.email(email)["status"] for email in gone} == {"cancelled"}


def test_suppressed_emails_on_one_route_do_not_hide_another(bench: Workbench) -> None:
    bench.add_route("second", "capture")
    suppress(bench, "gone@example.com")
    bench.put("a", 30, recipient_email="gone@example.com")
    other = bench.put("a", route="second")
    assert ids(bench.claim()) == set(other)


def test_an_expired_email_dies_and_the_next_is_claimed(bench: Workbench) -> None:
    [expired] = bench.put(priority=1, expires_at=HOUR)
    other = bench.put(expires_at=2 * HOUR)
    travel(bench.connection, HOUR)
    assert ids(bench.claim()) == set(other)
    row = bench.email(expired)
    assert (row["status"], row["dead_reason"]) == ("failed", "expired")
    assert "expired" in row["error_message"]


def test_an_expired_email_dies_even_when_more_is_due_than_is_promoted(bench: Workbench) -> None:
    bench.put("a", 1500, ready=False, next_retry_at=-HOUR, priority=9)
    [expired] = bench.put("a", priority=1, expires_at=-timedelta(seconds=1))
    assert bench.claim()
    row = bench.email(expired)
    assert (row["status"], row["dead_reason"]) == ("failed", "expired")


def test_what_expired_while_it_waited_for_its_time_is_not_promoted(bench: Workbench) -> None:
    [expired] = bench.put(ready=False, next_retry_at=HOUR, expires_at=HOUR)
    travel(bench.connection, HOUR)
    assert bench.ask("SELECT mailgres.promote()") == 1
    assert bench.email(expired)["dead_reason"] == "expired"
