"""Which events suppress an address, for whom and for how long; and which never do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from support.queue import RECIPIENT, Clock, Queue

EVENT = """
    SELECT record_email_event(NULL, %s, p_queue_id => %s, p_recipient_email => %s, p_detail => %s)
"""
SUPPRESSED = """
    SELECT recipient_email, tenant_id, reason, source, expires_at FROM email_suppressions
    ORDER BY recipient_email, tenant_id
"""
SOFT = {"kind": "soft", "reason": "mailbox_full"}
HARD = {"kind": "hard", "reason": "mailbox_unknown"}
MINUTE = timedelta(minutes=1)


def send(queue: Queue, **options: Any) -> UUID:
    queue_id = queue.enqueue(**options)
    queue.attempt("sent")
    return queue_id


def report(
    queue: Queue, event: str, queue_id: UUID, *, recipient: str | None = None, **detail: object
) -> str:
    return str(queue.value(EVENT, event, queue_id, recipient, Jsonb(detail)))


def suppressed(queue: Queue) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in queue.rows(SUPPRESSED)]


def test_a_hard_bounce_suppresses_for_all_tenants_without_an_end(queue: Queue) -> None:
    report(queue, "bounced", send(queue, tenant_id="shop"), **HARD)
    assert suppressed(queue) == [(RECIPIENT, "*", "bounced", "event", None)]


@pytest.mark.parametrize(
    ("event", "reason"), [("complained", "complained"), ("unsubscribed", "unsubscribed")]
)
def test_a_complaint_or_unsubscription_suppresses_for_its_tenant_only(
    queue: Queue, event: str, reason: str
) -> None:
    report(queue, event, send(queue, tenant_id="shop"))
    assert suppressed(queue) == [(RECIPIENT, "shop", reason, "event", None)]


@pytest.mark.parametrize("reason", ["content", "size", "reputation", "policy"])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_bounce_that_says_nothing_about_the_mailbox_never_suppresses(
    queue: Queue, kind: str, reason: str
) -> None:
    for _ in range(6):
        report(queue, "bounced", send(queue), kind=kind, reason=reason)
    assert suppressed(queue) == []


@pytest.mark.parametrize("kind", ["undetermined", None, "unheard of"])
def test_an_undetermined_bounce_never_suppresses(queue: Queue, kind: str | None) -> None:
    for _ in range(6):
        report(queue, "bounced", send(queue), kind=kind)
    assert suppressed(queue) == []


def test_five_soft_bounces_in_a_row_suppress_for_30_days(queue: Queue, clock: Clock) -> None:
    for _ in range(4):
        report(queue, "bounced", send(queue), **SOFT)
        clock.forward(MINUTE)
    assert suppressed(queue) == []
    report(queue, "bounced", send(queue), **SOFT)
    ends = clock.now + timedelta(days=30)
    assert suppressed(queue) == [(RECIPIENT, "*", "soft_bounced", "event", ends)]
    queued = queue.enqueue()
    assert queue.claim() == []
    assert queue.email(queued).error_message == "the address is suppressed: soft_bounced"
    clock.forward(timedelta(days=31))
    again = queue.enqueue()
    assert [email.id for email in queue.claim()] == [again]


def test_copies_of_one_soft_bounce_count_once(queue: Queue) -> None:
    queue_id = send(queue)
    for _ in range(6):
        report(queue, "bounced", queue_id, **SOFT)
    assert suppressed(queue) == []


def test_a_delivery_ends_a_series_of_soft_bounces(queue: Queue, clock: Clock) -> None:
    for place in range(8):
        clock.forward(MINUTE)
        report(queue, "delivered" if place == 4 else "bounced", send(queue), **SOFT)
    assert suppressed(queue) == []


def test_a_delivery_that_is_reported_late_ends_the_suppression(queue: Queue, clock: Clock) -> None:
    emails = [send(queue) for _ in range(6)]
    for queue_id in emails[:5]:
        clock.forward(MINUTE)
        report(queue, "bounced", queue_id, **SOFT)
    assert suppressed(queue)
    clock.forward(MINUTE)
    report(queue, "delivered", emails[5])
    assert suppressed(queue) == []


def test_a_delivery_does_not_end_a_hard_suppression(queue: Queue, clock: Clock) -> None:
    first, second = send(queue), send(queue)
    report(queue, "bounced", first, **HARD)
    clock.forward(MINUTE)
    report(queue, "delivered", second)
    assert [row[2] for row in suppressed(queue)] == ["bounced"]


def test_a_bounce_suppresses_only_the_recipient_that_it_names(queue: Queue) -> None:
    queue_id = send(queue, cc=["Bob@example.com"], also_to=["cid@example.com"])
    report(queue, "bounced", queue_id, recipient="Bob <bob@EXAMPLE.com>", **HARD)
    assert [row[0] for row in suppressed(queue)] == ["bob@example.com"]


@pytest.mark.parametrize("recipient", [None, RECIPIENT])
def test_nobody_is_suppressed_if_the_provider_does_not_say_which(
    queue: Queue, recipient: str | None
) -> None:
    """Resend reports with the whole list of recipients."""
    queue_id = send(queue, cc=["bob@example.com"])
    unknown = {"recipients_unknown": True} if recipient else {}
    report(queue, "bounced", queue_id, recipient=recipient, **HARD, **unknown)
    report(queue, "complained", queue_id, recipient=recipient, **unknown)
    assert suppressed(queue) == []
    assert queue.value("SELECT count(*) FROM email_events WHERE recipient_email IS NULL") == 2


def test_an_address_that_is_no_recipient_of_the_email_is_not_suppressed(queue: Queue) -> None:
    """A mailbox to which the recipient forwards."""
    report(queue, "bounced", send(queue), recipient="eve@example.com", **HARD)
    assert suppressed(queue) == []


def test_a_changed_suppression_rule_takes_effect(queue: Queue) -> None:
    queue.run("UPDATE mailgres.suppression_rules SET needed = 2 WHERE name = 'soft_bounces'")
    queue.run("UPDATE mailgres.suppression_rules SET enabled = false WHERE name = 'hard_bounce'")
    report(queue, "bounced", send(queue), **HARD)
    assert suppressed(queue) == []
    report(queue, "bounced", send(queue), **SOFT)
    report(queue, "bounced", send(queue), **SOFT)
    assert [row[2] for row in suppressed(queue)] == ["soft_bounced"]


# --- p_ignore_suppression


@pytest.mark.parametrize(
    "reason", ["bounced", "soft_bounced", "unsubscribed", "manual", "complained"]
)
def test_an_email_may_ignore_a_suppression_but_no_complaint(queue: Queue, reason: str) -> None:
    insert = "INSERT INTO email_suppressions (recipient_email, reason) VALUES (%s, %s)"
    queue.run(insert, RECIPIENT, reason)
    plain, urgent = queue.enqueue(), queue.enqueue(ignore_suppression=True)
    assert [email.id for email in queue.claim()] == ([] if reason == "complained" else [urgent])
    assert queue.email(plain).status == "cancelled"


def test_a_suppression_while_the_email_is_being_sent_does_not_change_its_outcome(
    queue: Queue,
) -> None:
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    queue.suppress()
    (done,) = queue.finish(
        {
            "id": str(claimed.id),
            "token": str(claimed.lease_token),
            "outcome": "sent",
            "provider_message_id": "re_1",
        }
    )
    assert (done.status, queue.email(queue_id).status) == ("sent", "sent")
    later = queue.enqueue()
    assert queue.claim() == []
    assert queue.email(later).status == "cancelled"
