"""Emails that go out in one call stay together while it may have arrived."""

from __future__ import annotations

from typing import Any

import pytest

from providers_state.harness import DAY, HOUR, MINUTE, SECOND, ProviderHarness, batches
from support.queue import Clock, report

UNKNOWN: dict[str, Any] = {"outcome": "ambiguous", "message": "timed out"}


@pytest.fixture
def batched(harness: ProviderHarness) -> ProviderHarness:
    """The route leads to a provider that takes a hundred in a call."""
    harness.add("batches", batch=100)
    harness.lead("batches")
    return harness


def doubtful(harness: ProviderHarness, count: int = 30, **columns: Any) -> list[Any]:
    """Put emails of one batch whose call may have arrived."""
    harness.put(count, **columns)
    claimed = harness.call(limit=count, batch_size=count, **UNKNOWN)
    assert len(claimed) == count
    assert len({email.batch_id for email in claimed}) == 1
    return claimed


def ids(emails: list[Any]) -> list[Any]:
    return sorted(email.id for email in emails)


def test_a_claim_is_put_into_calls(batched: ProviderHarness) -> None:
    batched.put(250)
    claimed = batched.claim(limit=250)
    assert [len(call) for call in batches(claimed)] == [100, 100, 50]
    assert sorted({email.batch_size for email in claimed}) == [50, 100]
    assert all(email.batch_id for email in claimed)


def test_urgent_emails_and_emails_with_files_are_not_batched(batched: ProviderHarness) -> None:
    batched.put(3)
    urgent = batched.put(2, priority=2)
    with_files = batched.put(2, has_attachments=True)
    refused = batched.put(2, error_class="transient", send_alone=True)
    claimed = batched.claim(limit=20)
    assert [len(call) for call in batches(claimed)] == [3] + [1] * 6
    alone = {email.id for email in claimed if email.batch_id is None}
    assert alone == {*urgent, *with_files, *refused}
    assert {email.batch_size for email in claimed if email.id in alone} == {None}


def test_a_single_email_is_no_batch(batched: ProviderHarness) -> None:
    batched.put()
    (email,) = batched.claim()
    assert (email.batch_id, email.batch_size) == (None, None)


def test_a_call_that_may_have_arrived_is_repeated_whole_by_whatever_claim(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched)
    clock.forward(MINUTE + SECOND)
    batched.put(50)
    again = batched.claim(limit=1)
    assert ids(again) == ids(first)
    assert {email.batch_id for email in again} == {first[0].batch_id}
    assert {email.batch_size for email in again} == {30}
    fresh = batched.claim(limit=100)
    assert len(fresh) == 50
    assert first[0].batch_id not in {email.batch_id for email in fresh}


def test_an_uncertain_batch_is_never_mixed_with_others(
    batched: ProviderHarness, clock: Clock
) -> None:
    one, other = doubtful(batched, 30), doubtful(batched, 20)
    clock.forward(MINUTE)
    batched.put(40)
    claimed = batched.claim(limit=90)
    calls = batches(claimed)
    assert [len(call) for call in calls] == [40, 30, 20]
    assert [sorted(call) for call in calls[1:]] == [ids(one), ids(other)]


def test_a_definite_fault_dissolves_a_batch(batched: ProviderHarness, clock: Clock) -> None:
    batched.put(10)
    batched.call("transient", 10, batch_size=10)
    assert {email.batch_id for email in batched.all()} == {None}
    clock.forward(MINUTE)
    batched.put(5)
    assert [len(call) for call in batches(batched.claim(limit=15))] == [15]


def test_a_batch_given_back_before_its_call_dissolves(batched: ProviderHarness) -> None:
    batched.put(10)
    claimed = batched.claim()
    batched.rows("SELECT mailgres.give_back(%s, %s)", claimed[0].lease_token, ids(claimed))
    assert {email.batch_id for email in batched.all()} == {None}
    (email,) = batched.claim(limit=1)
    assert email.batch_id is None


def test_a_batch_given_back_after_an_earlier_call_stays_fixed(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched)
    clock.forward(MINUTE)
    claimed = batched.claim()
    batched.rows("SELECT mailgres.give_back(%s, %s)", claimed[0].lease_token, ids(claimed))
    again = batched.claim(limit=3)
    assert (ids(again), again[0].batch_id) == (ids(first), first[0].batch_id)


@pytest.mark.parametrize("parts", [500, 7])
def test_the_batch_of_a_dead_worker_comes_back_whole(
    batched: ProviderHarness, clock: Clock, parts: int
) -> None:
    batched.put(30)
    lost = batched.claim(limit=30)
    clock.forward(61 * SECOND)
    again: list[Any] = []
    for _ in range(10):
        batched.value("SELECT mailgres.reap(%s)", parts)
        if again := batched.claim(limit=parts):
            break
        clock.forward(2 * SECOND)
    assert ids(again) == ids(lost)
    assert {email.batch_id for email in again} == {lost[0].batch_id}


def test_those_that_could_not_be_rendered_were_not_in_the_call(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(10)
    claimed = batched.claim()
    batched.finish(
        *(report(email, "permanent", code="render") for email in claimed[:3]),
        *(report(email, batch_size=7, **UNKNOWN) for email in claimed[3:]),
    )
    clock.forward(MINUTE)
    assert ids(batched.claim(limit=2)) == ids(claimed[3:])


def test_retries_do_not_split_an_uncertain_batch(batched: ProviderHarness, clock: Clock) -> None:
    first = doubtful(batched, 10)
    batched.run("UPDATE email_queue SET retries = 3 WHERE id = ANY (%s)", ids(first)[:4])
    for _ in range(6):
        clock.forward(HOUR)
        assert ids(batched.call(limit=1, batch_size=10, **UNKNOWN)) == ids(first)
    clock.forward(HOUR)
    batched.call("sent")
    assert batched.statuses() == {"sent": 10}


def test_different_waits_do_not_split_an_uncertain_batch(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(5)
    batched.put(5, retry_delay=2 * DAY, max_retry_delay=2 * DAY)
    first = batched.call(limit=10, batch_size=10, **UNKNOWN)
    assert batched.statuses() == {"pending": 10}
    clock.forward(MINUTE)
    assert ids(batched.claim(limit=1)) == ids(first)


def test_no_email_leaves_an_uncertain_batch_by_expiry_suppression_or_cancelling(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched, 10, expires_at=clock.now + 30 * SECOND)
    batched.suppress(batched.email(first[0].id).recipient_email)
    with pytest.raises(Exception, match="may have arrived"), batched.conn.transaction():
        batched.run("SELECT cancel_email(%s)", first[1].id)
    clock.forward(MINUTE)
    assert batched.value("SELECT mailgres.expire()") == 0
    assert ids(batched.claim(limit=1)) == ids(first)


def test_a_paused_tenant_does_not_split_an_uncertain_batch(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(3, tenant_id="a")
    batched.put(3, tenant_id="b")
    first = batched.call(limit=6, batch_size=6, **UNKNOWN)
    assert len(first) == 6
    batched.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('a', mailgres.now())")
    clock.forward(MINUTE)
    assert ids(batched.claim(limit=1)) == ids(first)


def test_an_uncertain_batch_is_held_when_its_key_no_longer_protects(
    batched: ProviderHarness, clock: Clock
) -> None:
    doubtful(batched)
    clock.forward(23 * HOUR)
    assert batched.claim() == []
    while batched.claim():
        pass
    dead = {(email.status, email.dead_reason) for email in batched.all()}
    assert dead == {("failed", "uncertain")}


def test_an_event_about_one_email_leaves_the_rest_of_its_batch_to_events(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched, 5)
    batched.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", first[0].id)
    clock.forward(MINUTE)
    assert batched.claim() == []
    rest = batched.all([email.id for email in first[1:]])
    assert {(email.status, email.dead_reason) for email in rest} == {("failed", "uncertain")}
    for email in first[1:]:
        batched.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", email.id)
    assert batched.statuses() == {"sent": 5}


def test_a_batch_retried_by_hand_is_sent_whole_with_its_key(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched, 5)
    clock.forward(MINUTE)
    again = batched.claim()
    batched.report_outcomes(again, "uncertain", message="other content")
    assert batched.statuses() == {"failed": 5}
    batched.run("SELECT retry_email(%s)", first[2].id)
    third = batched.claim(limit=1)
    assert ids(third) == ids(first)
    assert {(email.batch_id, email.generation) for email in third} == {(first[0].batch_id, 0)}


def test_an_email_of_an_incomplete_batch_is_retried_alone_with_a_new_key(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched, 5)
    batched.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", first[0].id)
    clock.forward(MINUTE)
    assert batched.claim() == []
    with pytest.raises(Exception, match="may deliver it twice"), batched.conn.transaction():
        batched.run("SELECT retry_email(%s)", first[1].id)
    batched.run("SELECT retry_email(%s, true)", first[1].id)
    (again,) = batched.claim()
    assert (again.id, again.generation, again.batch_id) == (first[1].id, 1, None)
    assert batched.statuses() == {"sent": 1, "sending": 1, "failed": 3}


def test_a_batch_that_is_partly_reported_keeps_its_key(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(5)
    back, *_ = claimed = batched.claim()
    batched.finish(*(report(email, batch_size=5, **UNKNOWN) for email in claimed[:2]))
    clock.forward(MINUTE - SECOND)
    batched.run("SELECT retry_email(%s, true)", back.id)
    after = batched.email(back.id)
    assert (after.generation, after.batch_id) == (0, back.batch_id)


def test_an_answer_for_each_email_settles_a_batch(batched: ProviderHarness, clock: Clock) -> None:
    doubtful(batched, 4)
    clock.forward(MINUTE)
    one, *rest = batched.claim()
    batched.finish(
        report(one, "permanent", batch_size=4), *(report(e, "sent", batch_size=4) for e in rest)
    )
    assert batched.statuses() == {"failed": 1, "sent": 3}
    assert batched.email(one.id).dead_reason == "permanent"


@pytest.mark.parametrize("outcome", ["rate", "quota", "config"])
def test_an_uncertain_batch_that_has_to_wait_stays_whole(
    batched: ProviderHarness, clock: Clock, outcome: str
) -> None:
    first = doubtful(batched, 6)
    clock.forward(MINUTE)
    batched.call(outcome, 6, batch_size=6)
    clock.forward(20 * MINUTE)
    again = batched.claim(limit=1)
    assert (ids(again), again[0].batch_id) == (ids(first), first[0].batch_id)


def test_an_uncertain_batch_stays_with_its_provider_when_the_route_changes(
    batched: ProviderHarness, clock: Clock
) -> None:
    first = doubtful(batched, 6)
    batched.lead("first")
    clock.forward(MINUTE)
    again = batched.claim(limit=1)
    assert ids(again) == ids(first)
    assert {(e.provider, e.batch_id) for e in again} == {("batches", first[0].batch_id)}


def test_a_batch_comes_back_whole_from_a_worker_that_is_late(
    batched: ProviderHarness, clock: Clock
) -> None:
    """However few are reaped at once; otherwise its later outcomes would tear it apart."""
    batched.put(30)
    late = batched.claim(limit=30)
    clock.forward(HOUR)
    assert batched.value("SELECT mailgres.reap(17)") == 30
    assert {done.refused for done in batched.finish(*(report(one, "sent") for one in late))} == {
        "MG030"
    }
    again = batched.claim(limit=30)
    assert ids(again) == ids(late)
    batched.finish(*(report(one, "sent") for one in again))
    assert batched.statuses() == {"sent": 30}


def extend(harness: ProviderHarness, emails: list[Any]) -> None:
    extended = harness.rows("SELECT mailgres.extend(%s, %s)", emails[0].lease_token, ids(emails))
    assert len(extended) == len(emails)


def test_none_of_a_batch_is_taken_back_while_another_has_its_lease(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(5)
    claimed = batched.claim()
    for _ in range(4):
        clock.forward(30 * SECOND)
        extend(batched, claimed[1:])
    assert batched.email(claimed[0].id).lease_until < clock.now
    assert batched.value("SELECT mailgres.reap()") == 0
    assert {done.refused for done in batched.report_outcomes(claimed, "sent", batch_size=5)} == {
        None
    }


def test_a_batch_is_reaped_whole_when_its_last_lease_expires(
    batched: ProviderHarness, clock: Clock
) -> None:
    batched.put(5)
    claimed = batched.claim()
    clock.forward(30 * SECOND)
    extend(batched, claimed[1:])
    clock.forward(59 * SECOND)
    assert batched.value("SELECT mailgres.reap(1)") == 0
    clock.forward(SECOND)
    assert batched.value("SELECT mailgres.reap(1)") == 5
    assert ids(batched.claim(limit=1)) == ids(claimed)


@pytest.mark.parametrize("held", [1, 3])
def test_held_batches_do_not_hide_later_expired_leases(
    batched: ProviderHarness, clock: Clock, held: int
) -> None:
    """A claim takes back no more than it asks for, and the held ones are the oldest."""
    for _ in range(held):
        batched.put(20)
        *late, living = batched.claim(limit=20)
        assert len({email.batch_id for email in late}) == 1
        batched.run(
            "UPDATE email_queue SET lease_until = lease_until + interval '1 hour' WHERE id = %s",
            living.id,
        )
    clock.forward(SECOND)
    batched.put(3, priority=1)
    died = batched.claim()
    clock.forward(61 * SECOND)
    assert ids(batched.claim_lost(3)) == ids(died)
    assert batched.value("SELECT mailgres.reap()") == 0
