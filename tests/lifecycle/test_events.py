"""What a provider reports later settles what was uncertain, and suppresses bad addresses."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.queue import (
    HOLD,
    RECIPIENT,
    RESEND,
    WITH_KEYS,
    WITHOUT_KEYS,
    Clock,
    Queue,
    is_leased,
    report,
)

EVENT = "SELECT record_email_event(NULL, %s, p_queue_id => %s)"
EVENT_BY_PROVIDER_ID = "SELECT record_email_event('resend', %s, %s)"
HARD = Jsonb({"kind": "hard", "reason": "mailbox_unknown"})
EVENTS = ["delivered", "bounced", "complained", "failed"]
MINUTE = timedelta(minutes=1)


def sent(queue: Queue, message_id: str = "re_1") -> UUID:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("sent", provider_message_id=message_id)
    return queue_id


def held(queue: Queue) -> UUID:
    """An email that may have arrived and waits for a person."""
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    assert queue.attempt("ambiguous", message="timed out").dead_reason == "uncertain"
    return queue_id


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_recorded(queue: Queue, clock: Clock, event: str) -> None:
    queue_id = sent(queue)
    clock.forward(MINUTE)
    said = Jsonb({"text": "550 no <bob@example.com>", "code": 550})
    statement = "SELECT record_email_event('resend', %s, 're_1', %s, p_detail => %s)"
    assert queue.value(statement, event, queue_id, said) == "recorded"
    found = queue.row("SELECT * FROM email_events")
    assert (found.queue_id, found.event, found.provider) == (queue_id, event, WITH_KEYS)
    assert (found.occurred_at, found.received_at) == (clock.now, clock.now)
    assert (found.provider_message_id, found.recipient_email) == ("re_1", RECIPIENT)
    assert (found.tenant_id, found.template_type, found.detail) == ("default", HOLD, said.obj)


@pytest.mark.parametrize("event", ["delivered", "bounced", "complained"])
def test_a_sent_email_stays_sent(queue: Queue, event: str) -> None:
    queue_id = sent(queue)
    before = queue.email(queue_id)
    queue.run(EVENT, event, queue_id)
    assert queue.email(queue_id) == before


def test_a_sent_email_that_the_provider_dropped_is_dead(queue: Queue, clock: Clock) -> None:
    queue_id = sent(queue)
    statement = "SELECT record_email_event(NULL, 'failed', p_queue_id => %s, p_detail => %s)"
    queue.run(statement, queue_id, Jsonb({"text": "no bob@example.com"}))
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.dead_at) == ("failed", "permanent", clock.now)
    assert (email.error_message, email.error_detail) == ("no <address>", "no bob@example.com")
    assert (email.sent_at, email.error_class) == (None, "permanent")
    assert queue.events(queue_id) == ["sent", "dead"]


@pytest.mark.parametrize("event", ["delivered", "bounced", "complained"])
def test_a_delivery_report_settles_an_uncertain_email_as_sent(
    queue: Queue, clock: Clock, event: str
) -> None:
    queue_id = held(queue)
    clock.forward(MINUTE)
    queue.run("SELECT record_email_event('smtp', %s, 're_9', %s)", event, queue_id)
    email = queue.email(queue_id)
    assert (email.status, email.sent_at) == ("sent", clock.now)
    assert (email.uncertain_since, email.dead_at, email.dead_reason) == (None, None, None)
    assert (email.provider_message_id, email.error_message) == ("re_9", None)


def test_a_failure_report_settles_an_uncertain_email_as_permanent(
    queue: Queue, clock: Clock
) -> None:
    queue_id = held(queue)
    clock.forward(MINUTE)
    queue.run(EVENT, "failed", queue_id)
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.uncertain_since) == ("failed", "permanent", None)
    assert email.error_message
    assert queue.value("SELECT retry_email(%s)", queue_id) is True


def test_a_delivery_report_before_the_retry_settles_the_email(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    queue.run(EVENT, "delivered", queue_id)
    assert queue.email(queue_id).status == "sent"
    clock.forward(MINUTE)
    assert queue.claim() == []


def test_a_failure_report_before_the_retry_settles_the_email(queue: Queue, clock: Clock) -> None:
    """With the same key the provider would only repeat that it took it."""
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    queue.run(EVENT, "failed", queue_id)
    clock.forward(MINUTE)
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.uncertain_since) == ("failed", "permanent", None)


def test_a_delivery_report_during_the_retry_settles_the_email(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue(RESEND)
    queue.attempt("ambiguous")
    clock.forward(MINUTE)
    claimed = queue.claim_one()
    queue.run(EVENT, "delivered", queue_id)
    email = queue.email(queue_id)
    assert email.status == "sent"
    assert not is_leased(email)
    assert queue.start_attempts([claimed]) == set()
    (done,) = queue.finish(report(claimed, "transient"))
    assert done.refused == "MG030"


def test_a_crash_that_may_have_arrived_is_settled(queue: Queue, clock: Clock) -> None:
    """The provider says that nothing arrived: it may be retried without a warning."""
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    for _ in range(5):
        queue.claim_one()
        clock.forward(MINUTE)
        queue.reap()
    assert queue.email(queue_id).dead_reason == "crashed"
    queue.run(EVENT, "failed", queue_id)
    assert queue.email(queue_id).uncertain_since is None


def test_an_event_is_matched_by_the_id_of_the_provider(queue: Queue) -> None:
    queue_id = sent(queue, "re_1")
    assert queue.value(EVENT_BY_PROVIDER_ID, "delivered", "re_1") == "recorded"
    assert events(queue, queue_id) == ["delivered"]


def test_an_event_is_matched_by_the_id_given_to_mark_email_sent(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run("SELECT mark_email_sent(%s, 're_2')", queue_id)
    assert queue.value(EVENT_BY_PROVIDER_ID, "delivered", "re_2") == "recorded"
    assert events(queue, queue_id) == ["delivered"]


@pytest.mark.parametrize(
    ("statement", "name"),
    [(EVENT, uuid4()), (EVENT_BY_PROVIDER_ID, "re_unknown"), (EVENT_BY_PROVIDER_ID, None)],
)
def test_an_event_of_an_unknown_email_is_kept(queue: Queue, statement: str, name: object) -> None:
    sent(queue)
    assert queue.value(statement, "bounced", name) == "unmatched"
    assert queue.value("SELECT count(*) FROM email_events") == 0
    assert queue.value("SELECT event FROM mailgres.unmatched_events") == "bounced"


@pytest.mark.parametrize("event", ["autoresponded", "DELIVERED"])
def test_an_unknown_event_is_kept_and_changes_nothing(queue: Queue, event: str) -> None:
    queue_id = sent(queue)
    before = queue.email(queue_id)
    assert queue.value(EVENT, event, queue_id) == "recorded"
    assert queue.email(queue_id) == before
    assert events(queue, queue_id) == [event]


@pytest.mark.parametrize(
    "arguments", ["NULL, 'sent'", "'', 'sent', 're_1'", "'resend', ''", "'resend', NULL"]
)
def test_an_event_without_a_name_or_a_provider_is_refused(queue: Queue, arguments: str) -> None:
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.run(f"SELECT record_email_event({arguments})")
    assert error.value.sqlstate == "MG025"
    assert error.value.diag.message_hint


def events(queue: Queue, queue_id: UUID) -> list[str]:
    rows = queue.rows("SELECT event FROM email_events WHERE queue_id = %s ORDER BY id", queue_id)
    return [row.event for row in rows]


def suppressions(queue: Queue) -> list[tuple[str, str, str]]:
    rows = queue.rows("SELECT recipient_email, tenant_id, reason FROM email_suppressions")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("event", "tenant"),
    [("bounced", "*"), ("complained", "shop"), ("delivered", ""), ("failed", "")],
)
def test_a_bounce_suppresses_for_all_tenants_and_a_complaint_for_one(
    queue: Queue, event: str, tenant: str
) -> None:
    """A bounce concerns everybody, a complaint the tenant about whom it is."""
    queue_id = queue.enqueue(recipient_email="Ana@Example.com", tenant_id="shop")
    queue.attempt("sent")
    for _ in range(2):
        queue.run(f"{EVENT[:-1]}, p_detail => %s)", event, queue_id, HARD)
    expected = [(RECIPIENT, tenant, event)] if tenant else []
    assert suppressions(queue) == expected


@pytest.mark.usefixtures("clock")
def test_what_is_queued_for_a_suppressed_address_is_cancelled(queue: Queue) -> None:
    queue.run(EVENT, "complained", sent(queue))
    queue_id = queue.enqueue()
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.error_code) == ("cancelled", "suppressed")
    assert email.error_message == "the address is suppressed: complained"
    assert queue.log(queue_id)[-1].error_message == email.error_message
