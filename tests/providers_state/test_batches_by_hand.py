"""Who is settled by hand never goes out again with the rest of its batch."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from providers_state.harness import MINUTE, SECOND, ProviderHarness
from support.queue import Clock, report

SETTLE = {
    "cancelled": "UPDATE email_queue SET status = 'cancelled' WHERE id = %s",
    "sent": "UPDATE email_queue SET status = 'sent', resend_id = 're_1' WHERE id = %s",
    "sent at": "UPDATE email_queue SET status = 'sent', sent_at = now(), resend_id = 're_1',"
    " provider_message_id = 're_1', ready = false WHERE id = %s",
}
RETRY_MANY = "SELECT id, code FROM mailgres.retry_emails(%s)"
ACCEPT_MANY = "SELECT id, code FROM mailgres.retry_emails(%s, true)"


@pytest.fixture
def doubtful(harness: ProviderHarness, clock: Clock) -> list[Any]:
    """A batch of five whose call may have arrived, and may be repeated now."""
    harness.add("batches", batch=100)
    harness.lead("batches")
    harness.put(5)
    emails = harness.call("ambiguous", 5, batch_size=5)
    clock.forward(MINUTE + SECOND)
    return emails


def states(harness: ProviderHarness, emails: list[Any]) -> set[Any]:
    return {(one.status, one.dead_reason) for one in harness.all([email.id for email in emails])}


@pytest.mark.parametrize("how", SETTLE)
def test_an_email_settled_by_hand_is_not_sent_again_with_its_batch(
    harness: ProviderHarness, doubtful: list[Any], clock: Clock, how: str
) -> None:
    settled, *rest = doubtful
    harness.run(SETTLE[how], settled.id)
    for _ in range(3):
        assert harness.claim() == []
        clock.forward(MINUTE)
    assert harness.email(settled.id).status == how.split(maxsplit=1)[0]
    assert states(harness, rest) == {("failed", "uncertain")}, "as if an event had settled it"


@pytest.mark.parametrize("how", SETTLE)
def test_a_settled_email_is_not_sent_again_by_a_retry_of_the_rest_of_its_batch(
    harness: ProviderHarness, doubtful: list[Any], how: str
) -> None:
    settled, one, other, *rest = doubtful
    harness.run(SETTLE[how], settled.id)
    harness.run("SELECT mailgres.promote()")
    with pytest.raises(psycopg.Error, match="may deliver it twice"), harness.conn.transaction():
        harness.run("SELECT retry_email(%s)", one.id)
    assert dict(harness.rows(RETRY_MANY, [other.id])) == {other.id: "MG024"}
    harness.run("SELECT retry_email(%s, true)", one.id)
    assert dict(harness.rows(ACCEPT_MANY, [other.id])) == {other.id: None}
    assert {email.id for email in harness.claim()} == {one.id, other.id}
    assert harness.email(settled.id).status == how.split(maxsplit=1)[0]
    assert states(harness, rest) == {("failed", "uncertain")}


def test_an_email_set_to_sent_by_hand_is_no_longer_uncertain(
    harness: ProviderHarness, doubtful: list[Any]
) -> None:
    harness.run(SETTLE["sent at"], doubtful[0].id)
    assert harness.email(doubtful[0].id).uncertain_since is None
    harness.run(SETTLE["cancelled"], doubtful[1].id)
    assert harness.email(doubtful[1].id).uncertain_since is not None
    harness.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", doubtful[1].id)
    assert harness.email(doubtful[1].id).status == "sent", "an event still settles it"


def test_a_retried_email_makes_its_batch_whole_again(
    harness: ProviderHarness, doubtful: list[Any]
) -> None:
    harness.run(SETTLE["cancelled"], doubtful[0].id)
    harness.run("SELECT retry_email(%s)", doubtful[0].id)
    again = harness.claim(limit=1)
    assert {email.id for email in again} == {email.id for email in doubtful}
    assert {(email.batch_id, email.generation) for email in again} == {(doubtful[0].batch_id, 0)}


def test_retried_together_with_the_rest_each_is_reported_once(
    harness: ProviderHarness, doubtful: list[Any]
) -> None:
    harness.run(SETTLE["cancelled"], doubtful[0].id)
    reported = harness.rows(RETRY_MANY, [doubtful[0].id, doubtful[1].id])
    assert sorted(reported) == sorted((email.id, None) for email in doubtful)


def test_a_retry_without_consent_keeps_the_key(
    harness: ProviderHarness, doubtful: list[Any]
) -> None:
    """Whatever settled one of the batch since it was asked for: what reopens asks again."""
    settled, one, *_ = doubtful
    harness.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", settled.id)
    before = harness.email(one.id)
    assert harness.value("SELECT mailgres.reopen(%s, false)", [one.id]) == []
    assert harness.email(one.id) == before
    assert harness.value("SELECT mailgres.reopen(%s, true)", [one.id]) == [one.id]
    assert harness.email(one.id).generation == 1


def test_a_batch_with_a_settled_email_is_held_when_its_worker_dies(
    harness: ProviderHarness, doubtful: list[Any], clock: Clock
) -> None:
    harness.claim()
    harness.run(SETTLE["cancelled"], doubtful[0].id)
    clock.forward(MINUTE + SECOND)
    assert harness.claim() == []
    assert states(harness, doubtful[:1]) == {("cancelled", None)}
    assert states(harness, doubtful[1:]) == {("failed", "uncertain")}


def test_a_worker_reports_a_batch_of_which_an_email_was_settled(
    harness: ProviderHarness, doubtful: list[Any]
) -> None:
    again = harness.claim()
    harness.run(SETTLE["cancelled"], doubtful[0].id)
    reported = {
        done.id: done.refused for done in harness.finish(*(report(one, "sent") for one in again))
    }
    assert reported == {one.id: "MG030" if one.id == doubtful[0].id else None for one in again}
    assert harness.statuses() == {"sent": 4, "cancelled": 1}
