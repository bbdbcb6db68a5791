"""What a provider reports later settles what was uncertain, and suppresses bad addresses."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from support.queue import (
    RECIPIENT,
    RESEND,
    WITH_KEYS,
    WITHOUT_KEYS,
    Clock,
    Queue,
    is_leased,
    report,
)

EVENT = "SELECT record_email_event(%s, %s)"
EVENT_BY_PROVIDER_ID = "SELECT record_email_event(%s, p_provider_message_id => %s)"
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
def test_event_logged(queue: Queue, clock: Clock, event: str) -> None:
    queue_id = sent(queue)
    clock.forward(MINUTE)
    said = "550 no <bob@example.com>"
    statement = "SELECT record_email_event(%s, %s, 're_1', %s)"
    assert queue.value(statement, event, queue_id, said) is True
    entry = queue.log(queue_id)[1]
    assert (entry.event, entry.at, entry.provider) == (event, clock.now, WITH_KEYS)
    assert (entry.from_status, entry.provider_message_id) == ("sent", "re_1")
    assert (entry.error_message, entry.error_detail) == ("550 no <<address>>", said)


@pytest.mark.parametrize("event", ["delivered", "bounced", "complained"])
def test_a_sent_email_stays_sent(queue: Queue, event: str) -> None:
    queue_id = sent(queue)
    before = queue.email(queue_id)
    queue.run(EVENT, event, queue_id)
    assert queue.email(queue_id) == before


def test_a_sent_email_that_the_provider_dropped_is_dead(queue: Queue, clock: Clock) -> None:
    queue_id = sent(queue)
    queue.run("SELECT record_email_event('failed', %s, NULL, 'no bob@example.com')", queue_id)
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.dead_at) == ("failed", "permanent", clock.now)
    assert (email.error_message, email.error_detail) == ("no <address>", "no bob@example.com")
    assert (email.sent_at, email.error_class) == (None, "permanent")
    assert queue.events(queue_id) == ["sent", "failed", "dead"]


@pytest.mark.parametrize("event", ["delivered", "bounced", "complained"])
def test_event_it_did_arrive(queue: Queue, clock: Clock, event: str) -> None:
    queue_id = held(queue)
    clock.forward(MINUTE)
    queue.run("SELECT record_email_event(%s, %s, 're_9')", event, queue_id)
    email = queue.email(queue_id)
    assert (email.status, email.sent_at) == ("sent", clock.now)
    assert (email.uncertain_since, email.dead_at, email.dead_reason) == (None, None, None)
    assert (email.provider_message_id, email.error_message) == ("re_9", None)


def test_it_did_not_arrive(queue: Queue, clock: Clock) -> None:
    queue_id = held(queue)
    clock.forward(MINUTE)
    queue.run(EVENT, "failed", queue_id)
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.uncertain_since) == ("failed", "permanent", None)
    assert email.error_message
    assert queue.value("SELECT retry_email(%s)", queue_id) is True


def test_it_did_arrive_before_it_is_repeated(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    queue.run(EVENT, "delivered", queue_id)
    assert queue.email(queue_id).status == "sent"
    clock.forward(MINUTE)
    assert queue.claim() == []


def test_it_did_not_arrive_before_it_is_repeated(queue: Queue, clock: Clock) -> None:
    """With the same key the provider would only repeat that it took it."""
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    queue.run(EVENT, "failed", queue_id)
    clock.forward(MINUTE)
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.uncertain_since) == ("failed", "permanent", None)


def test_it_did_arrive_while_it_is_repeated(queue: Queue, clock: Clock) -> None:
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


def test_by_the_id_of_the_provider(queue: Queue) -> None:
    queue_id = sent(queue, "re_1")
    assert queue.value(EVENT_BY_PROVIDER_ID, "delivered", "re_1") is True
    assert queue.events(queue_id) == ["sent", "delivered"]


def test_by_the_id_given_to_mark_email_sent(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run("SELECT mark_email_sent(%s, 're_2')", queue_id)
    assert queue.value(EVENT_BY_PROVIDER_ID, "delivered", "re_2") is True
    assert queue.events(queue_id) == ["sent", "delivered"]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (EVENT, uuid4()),
        (EVENT, None),
        (EVENT_BY_PROVIDER_ID, "re_unknown"),
        (EVENT_BY_PROVIDER_ID, None),
    ],
)
def test_event_an_unknown_email(queue: Queue, statement: str, name: object) -> None:
    sent(queue)
    assert queue.value(statement, "bounced", name) is False
    assert queue.value("SELECT count(*) FROM email_logs WHERE event = 'bounced'") == 0


@pytest.mark.parametrize("event", ["opened", "", None, "DELIVERED", "sent"])
def test_an_event_that_does_not_exist(queue: Queue, event: str | None) -> None:
    queue_id = sent(queue)
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.run(EVENT, event, queue_id)
    assert error.value.sqlstate == "MG025"
    assert error.value.diag.message_hint


def suppressions(queue: Queue) -> list[tuple[str, str, str]]:
    rows = queue.rows("SELECT recipient_email, tenant_id, reason FROM email_suppressions")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("event", "tenant"),
    [("bounced", "*"), ("complained", "shop"), ("delivered", ""), ("failed", "")],
)
def test_event_suppresses(queue: Queue, event: str, tenant: str) -> None:
    """A bounce concerns everybody, a complaint the tenant about whom it is."""
    queue_id = queue.enqueue(recipient_email="Ana@Example.com", tenant_id="shop")
    queue.attempt("sent")
    for _ in range(2):
        queue.run(EVENT, event, queue_id)
    expected = [(RECIPIENT, tenant, event)] if tenant else []
    assert suppressions(queue) == expected


def test_does_not_suppress_when_told_so(queue: Queue) -> None:
    queue.run("SELECT record_email_event('bounced', %s, p_suppress => false)", sent(queue))
    assert suppressions(queue) == []


@pytest.mark.usefixtures("clock")
def test_what_is_queued_for_a_suppressed_address_is_cancelled(queue: Queue) -> None:
    queue.run(EVENT, "bounced", sent(queue))
    queue_id = queue.enqueue()
    assert queue.claim() == []
    email = queue.email(queue_id)
    assert (email.status, email.error_message) == ("cancelled", "the address is suppressed")
