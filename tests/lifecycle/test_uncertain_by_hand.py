# ruff: noqa: ISC004 - a statement on several lines
"""No change by hand sends an email again that may have arrived, unless a key protects it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue

DAY = timedelta(days=1)


Warned = tuple[str | None, str | None, str | None, str | None]


@pytest.fixture
def warnings(queue: Queue) -> Iterator[list[Warned]]:
    """Yield what the server warns of while the test runs: severity, code, message, hint."""
    heard: list[Warned] = []

    def hear(said: psycopg.errors.Diagnostic) -> None:
        heard.append((said.severity, said.sqlstate, said.message_primary, said.message_hint))

    queue.conn.add_notice_handler(hear)
    yield heard
    queue.conn.remove_notice_handler(hear)


def held(queue: Queue, clock: Clock, provider: str = WITHOUT_KEYS, template: str = HOLD) -> UUID:
    """Enqueue an email that is a dead letter because it may have arrived, unprotected by a key."""
    queue.use_provider(provider)
    queue_id = queue.enqueue(template, max_retries=0)
    queue.attempt("ambiguous", message="timed out")
    email = queue.email(queue_id)
    assert (email.status, email.dead_reason) == ("failed", "uncertain")
    if provider == WITH_KEYS:
        clock.forward(DAY)
    return queue_id


WAYS = {
    "the status": ["UPDATE email_queue SET status = 'pending'"],
    "the status and the time": [
        "UPDATE email_queue SET status = 'pending', next_retry_at = mailgres.now()"
    ],
    "the status and all that held it": [
        "UPDATE email_queue SET status = 'pending', ready = true, retries = 0, dead_at = NULL,"
        " dead_reason = NULL, uncertain_since = NULL, batch_id = NULL, error_message = NULL"
    ],
    "the doubt, then the status": [
        "UPDATE email_queue SET uncertain_since = NULL",
        "UPDATE email_queue SET status = 'pending'",
    ],
    "cancelled, then pending": [
        "UPDATE email_queue SET status = 'cancelled'",
        "UPDATE email_queue SET status = 'pending'",
    ],
    "cancelled without the doubt, then pending": [
        "UPDATE email_queue SET status = 'cancelled', uncertain_since = NULL",
        "UPDATE email_queue SET status = 'pending'",
    ],
    "another reason, then the status": [
        "UPDATE email_queue SET dead_reason = 'exhausted'",
        "UPDATE email_queue SET status = 'pending'",
    ],
    "an upsert": [
        "INSERT INTO email_queue (id, template_type, recipient_email)"
        " SELECT id, template_type, recipient_email FROM email_queue"
        " ON CONFLICT (id) DO UPDATE SET status = 'pending'"
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_a_held_email_is_not_sent_again_by_changing(
    queue: Queue, clock: Clock, warnings: list[Warned], way: str, provider: str
) -> None:
    queue_id = held(queue, clock, provider)
    for statement in WAYS[way]:
        done = queue.conn.execute(statement)
    assert done.rowcount == 0, "it is not counted as changed"
    email = queue.email(queue_id)
    assert email.status in {"failed", "cancelled"}
    assert queue.claim() == []
    ((severity, code, message, hint),) = warnings
    assert (severity, code) == ("WARNING", "MG024")
    assert str(queue_id) in str(message)
    assert "p_accept_duplicate => true" in str(hint)


def test_the_other_rows_of_the_statement_proceed(queue: Queue, clock: Clock) -> None:
    one = held(queue, clock)
    others = set()
    for _ in range(3):
        others.add(queue.enqueue(max_retries=0))
        queue.attempt("permanent")
    done = queue.conn.execute("UPDATE email_queue SET status = 'pending' WHERE status = 'failed'")
    assert done.rowcount == 3
    assert {email.id for email in queue.claim()} == others
    assert queue.email(one).dead_reason == "uncertain"


def test_many_held_emails_do_not_flood_the_client(
    queue: Queue, clock: Clock, warnings: list[Warned]
) -> None:
    for _ in range(30):
        held(queue, clock)
    for _ in range(2):
        assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 0
    assert len(warnings) == 22
    assert "more emails" in str(warnings[10][2])


def test_a_held_email_goes_again_when_a_duplicate_is_accepted(queue: Queue, clock: Clock) -> None:
    queue_id = held(queue, clock)
    queue.run("SELECT retry_email(%s, p_accept_duplicate => true)", queue_id)
    assert queue.claim_one().generation == 1


def test_a_held_email_within_its_key_window_can_be_retried(queue: Queue) -> None:
    Clock(queue.conn)
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue(max_retries=0)
    queue.attempt("ambiguous", message="timed out")
    assert queue.email(queue_id).status == "failed"
    assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 1
    email = queue.claim_one()
    assert (email.generation, email.uncertain_since is not None) == (0, True)


@pytest.mark.usefixtures("clock")
def test_an_email_whose_call_has_started_is_left_to_its_worker(
    queue: Queue, warnings: list[Warned]
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(HOLD)
    claimed = queue.claim_one()
    queue.start_attempts([claimed])
    assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 0
    email = queue.email(claimed.id)
    assert (email.status, email.lease_token) == ("sending", claimed.lease_token)
    assert len(warnings) == 1


@pytest.mark.usefixtures("clock")
def test_an_email_whose_template_says_resend_is_taken_from_its_worker(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(RESEND)
    queue.start_attempts([queue.claim_one()])
    assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 1
    assert len(queue.claim()) == 1


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.usefixtures("clock")
def test_an_email_taken_from_its_call_is_held_as_uncertain(queue: Queue, status: str) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(HOLD)
    queue.start_attempts([queue.claim_one()])
    queue.run(f"UPDATE email_queue SET status = '{status}'")
    assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 0
    assert queue.claim() == []


@pytest.mark.usefixtures("clock")
def test_a_sent_email_set_to_pending_by_hand_is_sent_again(queue: Queue) -> None:
    queue.enqueue()
    queue.attempt("sent")
    assert queue.conn.execute("UPDATE email_queue SET status = 'pending'").rowcount == 1
    assert len(queue.claim()) == 1
