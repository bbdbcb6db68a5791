"""Another provider of the route is tried after a definite rejection, and only then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from providers_state.harness import ACCOUNT, DAY, HOUR, MINUTE, SECOND, ProviderHarness
from support.queue import RESEND, Clock, report


@pytest.fixture
def two(harness: ProviderHarness) -> ProviderHarness:
    """A route along two providers."""
    harness.add("second")
    harness.lead("first", "second")
    return harness


def test_the_first_provider_of_a_route_sends(two: ProviderHarness) -> None:
    two.put(10)
    assert {email.provider for email in two.claim()} == {"first"}


def test_the_next_provider_is_used_at_once_and_after_the_last_the_policy_waits(
    two: ProviderHarness, clock: Clock
) -> None:
    queue_id = two.enqueue()
    for tries, (provider, wait) in enumerate(
        [("first", 0 * MINUTE), ("second", 5 * MINUTE), ("first", 0 * MINUTE)], start=1
    ):
        (email,) = two.call("transient", message="refused")
        assert email.provider == provider
        after = two.email(queue_id)
        assert (after.retries, after.next_retry_at) == (tries, clock.now + wait)
        clock.forward(wait)
    two.call("sent")
    assert [entry.provider for entry in two.log(queue_id) if entry.provider] == [
        "first", "second", "first", "second",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "reported"),
    [("ambiguous", {}), ("ambiguous", ACCOUNT), ("transient", {"pinned": True})],
)
def test_an_uncertain_email_is_never_given_to_the_next_provider(
    two: ProviderHarness, clock: Clock, outcome: str, reported: dict[str, Any]
) -> None:
    two.put()
    (email,) = two.call(outcome, **reported)
    assert two.claim() == []
    for fault in ("transient", "quota", "config"):
        clock.forward(20 * MINUTE)
        (again,) = two.call(fault)
        assert (again.id, again.provider) == (email.id, "first")
        two.alter("first", limited_until=None)
    two.run("SELECT mailgres.set_circuit('first', 'open', 'a test', NULL)")
    clock.forward(MINUTE)
    assert two.claim() == []


def test_without_keys_an_uncertain_one_stays_where_it_was_too(
    two: ProviderHarness, clock: Clock
) -> None:
    two.add("plain", keys=False)
    two.lead("plain", "second")
    two.put(template=RESEND)
    (email,) = two.claim()
    two.start_attempts([email])
    two.finish(report(email, "ambiguous"))
    clock.forward(MINUTE)
    assert [email.provider for email in two.claim()] == ["plain"]


def test_after_a_fault_of_the_sender_the_next_provider_is_used_at_once(
    two: ProviderHarness, clock: Clock
) -> None:
    queue_id = two.enqueue()
    two.call("config", code="validation_error")
    parked = two.email(queue_id)
    assert (parked.next_retry_at, parked.retries, parked.parked_since) == (clock.now, 0, clock.now)
    (email,) = two.call("config")
    assert email.provider == "second"
    assert two.email(queue_id).next_retry_at == clock.now + 15 * MINUTE
    clock.forward(15 * MINUTE)
    (email,) = two.call("sent")
    assert email.provider == "first"


def test_a_dead_account_uses_the_fallback_at_once(two: ProviderHarness, clock: Clock) -> None:
    two.put(3)
    (email,) = two.call("config", **ACCOUNT)
    assert two.email(email.id).next_retry_at == clock.now
    assert {email.provider for email in two.call("sent", 3)} == {"second"}
    assert two.statuses() == {"sent": 3}


def test_the_first_provider_is_probed_while_its_fallback_sends(
    two: ProviderHarness, clock: Clock
) -> None:
    two.put()
    two.call("config", **ACCOUNT)
    two.call("sent")
    clock.forward(120 * SECOND)
    two.put(10)
    claims = [two.claim(limit=5) for _ in range(3)]
    providers = sorted(email.provider for claimed in claims for email in claimed)
    assert providers == ["first"] + ["second"] * 9


def test_an_unusable_fallback_is_not_waited_for(two: ProviderHarness, clock: Clock) -> None:
    two.run("SELECT mailgres.pause_provider('second')")
    queue_id = two.enqueue()
    two.call("transient")
    assert two.email(queue_id).next_retry_at == clock.now + MINUTE


def test_after_failures_the_providers_of_a_route_are_used_in_order(
    two: ProviderHarness, clock: Clock
) -> None:
    two.add("third")
    two.lead("third", "first", "second")
    two.put(max_retries=9)
    providers = []
    for _ in range(4):
        (email,) = two.call("transient")
        providers.append(email.provider)
        clock.forward(HOUR if email.provider == "second" else SECOND)
    assert providers == ["third", "first", "second", "third"]


def test_a_batch_refused_for_one_of_its_emails_stays_with_its_provider(
    two: ProviderHarness, clock: Clock
) -> None:
    two.add("batches", batch=100)
    two.lead("batches", "second")
    two.put(5)
    two.call("transient", 5, code="validation_error", batch_refused=True, batch_size=5)
    again = two.claim()
    assert [(email.provider, email.batch_id) for email in again] == [("batches", None)] * 5
    assert {email.retries for email in again} == {0}
    assert clock.now == again[0].leased_at


@pytest.mark.parametrize(("wait", "by"), [(MINUTE, "first"), (MINUTE + SECOND, "second")])
def test_a_long_wait_for_a_rate_limit_uses_the_fallback(
    two: ProviderHarness, clock: Clock, wait: timedelta, by: str
) -> None:
    two.put(2, next_retry_at=clock.now)
    (email,) = two.call("rate", retry_after=wait)
    if by == "first":
        assert two.claim() == []
        clock.forward(wait)
    assert {email.provider for email in two.claim()} == {by}
    assert two.email(email.id).status == "sending"


@pytest.mark.parametrize(
    ("pause", "wait"), [(SECOND, MINUTE), (5 * MINUTE, 5 * MINUTE), (DAY, 15 * MINUTE)]
)
def test_an_uncertain_email_of_an_unusable_provider_waits_until_it_may_be_usable(
    two: ProviderHarness, clock: Clock, pause: timedelta, wait: timedelta
) -> None:
    two.put()
    (email,) = two.call("ambiguous")
    clock.forward(HOUR)
    two.run("SELECT mailgres.pause_provider('first', %s)", clock.now + pause)
    assert two.claim() == []
    assert two.email(email.id).next_retry_at == clock.now + wait
