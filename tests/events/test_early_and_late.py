"""Events that come before the email is known, weeks later, or about an email that nobody knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.postgres import Connect
from support.queue import RECIPIENT, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

BY_ID = "SELECT record_email_event('resend', %s, %s, p_event_id => %s)"
MATCH = "SELECT mailgres.match_email_events()"
DAY = timedelta(days=1)
SECONDS = timedelta(seconds=10)


def sent(queue: Queue, message_id: str = "re_1") -> UUID:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("sent", provider_message_id=message_id)
    return queue_id


def state(queue: Queue, queue_id: UUID) -> Any:
    return queue.value("SELECT state FROM email_deliveries WHERE id = %s", queue_id)


def test_an_event_before_the_worker_stored_the_id_is_matched_later(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    assert queue.value(BY_ID, "delivered", "re_1", "1") == "unmatched"
    assert queue.value(BY_ID, "delivered", "re_1", "1") == "duplicate"
    queue.run(MATCH)
    assert state(queue, queue_id) is None
    queue.finish(report(claimed, "sent", provider_message_id="re_1"))
    clock.forward(SECONDS)
    queue.run(MATCH)
    assert state(queue, queue_id) == "delivered"
    assert queue.value("SELECT count(*) FROM mailgres.unmatched_events") == 0
    assert queue.value(BY_ID, "delivered", "re_1", "1") == "duplicate"


def test_a_failure_that_is_reported_while_the_email_is_being_sent_counts_after_it_is_sent(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    statement = "SELECT record_email_event('resend', 'failed', 're_1', %s, 'e1', p_detail => %s)"
    queue.run(statement, queue_id, Jsonb({"reason": "quota"}))
    queue.run(MATCH)
    queue.finish(report(claimed, "sent", provider_message_id="re_1"))
    clock.forward(SECONDS)
    queue.run(MATCH)
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "quota")


def test_an_event_of_an_unknown_email_is_kept_for_a_day(queue: Queue, clock: Clock) -> None:
    queue.value(BY_ID, "delivered", "re_unknown", "1")
    left = "SELECT count(*) FROM mailgres.unmatched_events"
    for _ in range(23):
        clock.forward(timedelta(hours=1))
        queue.run(MATCH)
        assert queue.value(left) == 1
    clock.forward(timedelta(hours=2))
    queue.run(MATCH)
    assert queue.value(left) == 0


def test_unknown_events_are_looked_up_less_and_less_often(queue: Queue, clock: Clock) -> None:
    queue.value(BY_ID, "delivered", "re_unknown", "1")
    lookups = 0
    for _ in range(24 * 60):
        clock.forward(timedelta(minutes=1))
        lookups += queue.value(MATCH)
    assert 10 < lookups < 40


def test_a_complaint_weeks_after_archiving_is_recorded_and_suppresses(
    queue: Queue, clock: Clock
) -> None:
    queue_id = sent(queue)
    queue.run("SELECT record_email_event('resend', 'failed', 're_1')")
    clock.forward(8 * DAY)
    assert queue.value("SELECT mailgres.archive_dead_letters()") == 1
    clock.forward(21 * DAY)
    assert queue.value(BY_ID, "complained", "re_1", "2") == "recorded"
    assert queue.value("SELECT recipient_email FROM email_suppressions") == RECIPIENT
    events = "SELECT array_agg(event ORDER BY id) FROM email_events WHERE queue_id = %s"
    assert queue.value(events, queue_id) == ["failed", "complained"]
    clock.forward(90 * DAY)
    assert queue.value("SELECT mailgres.purge_archive()") == 1
    assert queue.value("SELECT count(*) FROM email_events") == 0
    assert queue.value("SELECT count(*) FROM mailgres.deliveries") == 0


def test_events_are_deleted_with_their_email(queue: Queue, clock: Clock) -> None:
    sent(queue)
    queue.value(BY_ID, "delivered", "re_1", "1")
    clock.forward(91 * DAY)
    assert queue.value("SELECT mailgres.delete_expired_emails()") == 1
    assert queue.value("SELECT count(*) FROM email_events") == 0
    assert queue.value("SELECT count(*) FROM mailgres.deliveries") == 0


# --- whose email it is


def test_an_account_cannot_report_about_the_email_of_another_account(queue: Queue) -> None:
    queue_id = sent(queue)
    other = "SELECT record_email_event('resend-acme', 'bounced', %s, %s, p_detail => %s)"
    hard = Jsonb({"kind": "hard"})
    assert queue.value(other, "re_1", None, hard) == "unmatched"
    assert queue.value(other, None, queue_id, hard) == "unmatched"
    assert queue.value("SELECT count(*) FROM email_suppressions") == 0


def test_an_event_of_an_email_that_was_never_tried_is_not_matched(queue: Queue) -> None:
    queue_id = queue.enqueue()
    statement = "SELECT record_email_event('resend', 'bounced', p_queue_id => %s)"
    assert queue.value(statement, queue_id) == "unmatched"


def test_an_email_that_is_sent_again_has_a_new_delivery_state(queue: Queue, clock: Clock) -> None:
    queue_id = sent(queue, "re_1")
    queue.value(BY_ID, "failed", "re_1", "1")
    clock.forward(SECONDS)
    queue.run("SELECT retry_email(%s)", queue_id)
    assert state(queue, queue_id) is None
    queue.attempt("sent", provider_message_id="re_2")
    assert queue.value(BY_ID, "failed", "re_1", "2") == "recorded", "a late copy"
    assert queue.email(queue_id).status == "sent"
    queue.value(BY_ID, "delivered", "re_2", "3")
    assert state(queue, queue_id) == "delivered"


# --- quota


def test_an_email_that_the_quota_stopped_is_retried_by_one_command(queue: Queue) -> None:
    queue_id = sent(queue)
    statement = "SELECT record_email_event('resend', 'failed', 're_1', p_detail => %s)"
    queue.run(statement, Jsonb({"reason": "quota", "text": "reached_daily_quota"}))
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason, email.error_class) == ("failed", "quota", "quota")
    assert email.error_message == "reached_daily_quota"
    queue.run("SELECT retry_email(%s)", queue_id)
    again = queue.claim_one()
    assert (again.id, again.generation) == (queue_id, 1), "under a new key"


# --- uncertain


@pytest.mark.parametrize(("event", "status"), [("sent", "sent"), ("failed", "failed")])
def test_an_event_that_came_before_the_worker_died_settles_the_email(
    queue: Queue, clock: Clock, event: str, status: str
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    queue.start_attempts([claimed])
    statement = "SELECT record_email_event('smtp', %s, p_queue_id => %s)"
    waits = "unmatched"  # until the outcome is known
    assert queue.value(statement, event, queue_id) == ("recorded" if event == "sent" else waits)
    clock.forward(timedelta(minutes=2))
    queue.reap()
    assert queue.email(queue_id).dead_reason == "uncertain"
    queue.run(MATCH)
    email = queue.email(queue_id)
    assert (email.status, email.uncertain_since) == (status, None)
    assert email.dead_reason == (None if status == "sent" else "permanent")


# --- at the same time


def test_an_event_that_two_callers_record_at_once_is_recorded_once(
    committed: Queue, connect: Connect
) -> None:
    queue_id = sent(committed)
    first, second = (Queue(connect(autocommit=False)) for _ in range(2))
    statement = "SELECT record_email_event('resend', 'bounced', 're_1', p_event_id => '1')"
    assert first.value(statement) == "recorded"
    first.conn.commit()
    assert second.value(statement) == "duplicate"
    second.conn.commit()
    assert state(committed, queue_id) == "bounced"
    assert committed.value("SELECT sum(bounced) FROM mailgres.event_deltas") == 1


# --- bad input


@pytest.mark.parametrize(
    "events",
    ["{}", "null", "[1]", '[{"event": "sent"}]', '[{"event": "sent", "queue_id": "x"}]'],
)
def test_a_list_with_a_malformed_event_is_refused_as_a_whole(queue: Queue, events: str) -> None:
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.run("SELECT record_email_events(%s)", events)
    assert error.value.sqlstate == "MG025"
    assert error.value.diag.message_hint


def test_no_text_of_a_provider_makes_recording_an_event_fail(queue: Queue) -> None:
    queue_id = sent(queue)
    statement = """
        SELECT record_email_event('resend', %s, %s, %s, p_event_id => %s, p_occurred_at => %s,
                                  p_recipient_email => %s, p_detail => %s)
    """
    long = "x" * 100_000
    for occurred in ("infinity", "-infinity", "9999-01-01", "0001-01-01", None):
        for detail in (Jsonb({"text": long}), Jsonb(["a"]), Jsonb("a"), None):
            given = ("bounced", None, queue_id, uuid4().hex + long, occurred, long, detail)
            assert queue.value(statement, *given) == "recorded"
    latest = "SELECT max(occurred_at) <= mailgres.now() FROM email_events"
    assert queue.value(latest) is True
    assert queue.value("SELECT max(pg_column_size(detail)) < 70000 FROM email_events") is True
    assert queue.value("SELECT count(*) FROM email_suppressions") == 0
