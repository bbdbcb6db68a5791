"""People change rows by hand; what they meant happens."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from support.queue import Clock, Queue, is_leased

HOUR = timedelta(hours=1)


def test_an_email_whose_next_retry_at_is_set_to_now_is_claimed(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + HOUR)
    assert queue.claim() == []
    queue.run("UPDATE email_queue SET next_retry_at = mailgres.now()")
    assert queue.claim_one().id == queue_id


def test_an_email_whose_next_retry_at_is_set_to_later_waits(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue()
    queue.run("UPDATE email_queue SET next_retry_at = mailgres.now() + interval '1 hour'")
    assert queue.claim() == []
    clock.forward(HOUR)
    assert queue.claim_one().id == queue_id


def test_next_retry_at_set_to_null_means_now(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + HOUR)
    queue.run("UPDATE email_queue SET next_retry_at = NULL")
    assert queue.email(queue_id).next_retry_at == clock.now
    assert queue.claim_one().id == queue_id


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("column", ["", ", next_retry_at = NULL", ", status = 'pending'"])
def test_an_email_on_a_route_that_does_not_exist_is_still_claimed(
    queue: Queue, column: str
) -> None:
    queue_id = queue.enqueue()
    queue.run(f"UPDATE email_queue SET route = 'mistyped'{column}")
    email = queue.claim_one()
    assert (email.id, email.route) == (queue_id, "default")


@pytest.mark.parametrize("outcome", ["permanent", "transient"])
def test_a_dead_email_set_to_pending_by_hand_starts_again(
    queue: Queue, clock: Clock, outcome: str
) -> None:
    queue_id = queue.enqueue(max_retries=0)
    assert queue.attempt(outcome).status == "failed"
    clock.forward(HOUR)
    queue.run("UPDATE email_queue SET status = 'pending'")
    email = queue.email(queue_id)
    assert (email.status, email.dead_at, email.dead_reason) == ("pending", None, None)
    assert queue.claim_one().id == queue_id
    assert queue.events(queue_id) == ["dead", "reopened"]


@pytest.mark.usefixtures("clock")
def test_a_cancelled_email_set_to_pending_by_hand_starts_again(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run("UPDATE email_queue SET status = 'cancelled'")
    assert queue.claim() == []
    queue.run("UPDATE email_queue SET status = 'pending'")
    assert queue.claim_one().id == queue_id
    assert queue.events(queue_id) == ["cancelled", "reopened"]


@pytest.mark.usefixtures("clock")
def test_an_email_in_sending_can_be_set_to_pending_by_hand(queue: Queue) -> None:
    queue_id = queue.enqueue()
    before = queue.claim_one("dead")
    queue.run("UPDATE email_queue SET status = 'pending'")
    assert not is_leased(queue.email(queue_id))
    after = queue.claim_one("alive")
    assert after.id == queue_id
    assert after.lease_token != before.lease_token


def test_an_email_set_to_failed_by_hand_gets_time_and_reason(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue()
    queue.run("UPDATE email_queue SET status = 'failed'")
    email = queue.email(queue_id)
    assert (email.dead_at, email.dead_reason) == (clock.now, "permanent")
    assert email.error_message == "marked as failed by hand"
    assert queue.claim() == []


@pytest.mark.usefixtures("clock")
def test_an_email_set_to_failed_by_hand_keeps_its_error(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run(
        "UPDATE email_queue SET status = 'failed', dead_reason = 'expired', error_message = 'why'"
    )
    email = queue.email(queue_id)
    assert (email.dead_reason, email.error_message) == ("expired", "why")


@pytest.mark.parametrize("claimed", [False, True])
def test_an_email_set_to_sent_by_hand_gets_its_time(
    queue: Queue, clock: Clock, *, claimed: bool
) -> None:
    queue_id = queue.enqueue()
    if claimed:
        queue.claim_one()
    queue.run("UPDATE email_queue SET status = 'sent'")
    email = queue.email(queue_id)
    assert (email.sent_at, email.provider, email.provider_message_id) == (clock.now, None, None)
    assert not is_leased(email)
    assert queue.claim() == []


@pytest.mark.usefixtures("clock")
def test_a_resend_id_set_by_hand_is_also_the_provider_message_id(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.claim_one()
    queue.run("UPDATE email_queue SET status = 'sent', resend_id = 're_1'")
    email = queue.email(queue_id)
    assert (email.resend_id, email.provider_message_id) == ("re_1", "re_1")


def test_many_emails_can_be_changed_by_hand_at_once(queue: Queue, clock: Clock) -> None:
    for _ in range(5):
        queue.enqueue(max_retries=0)
    queue.claim()
    queue.run("UPDATE email_queue SET status = 'failed', error_message = 'stop all'")
    clock.forward(HOUR)
    queue.run("UPDATE email_queue SET status = 'pending' WHERE status = 'failed'")
    assert len(queue.claim()) == 5


def test_setting_the_status_sending_by_hand_is_refused(queue: Queue) -> None:
    """A claim by hand without a lease would be stuck forever."""
    queue.enqueue()
    with pytest.raises(psycopg.errors.CheckViolation), queue.conn.transaction():
        queue.run("UPDATE email_queue SET status = 'sending'")


@pytest.mark.usefixtures("clock")
def test_a_plain_insert_is_claimed(queue: Queue) -> None:
    user_id = uuid4()
    queue.run(
        "INSERT INTO email_queue (user_id, template_type, recipient_email, payload)"
        " VALUES (%s, 'welcome_user', 'ana@example.com', '{\"name\": \"Ana\"}')",
        user_id,
    )
    email = queue.claim_one()
    assert (email.user_id, email.payload) == (user_id, {"name": "Ana"})
    assert (email.tenant_id, email.priority, email.max_retries) == ("default", 5, 3)
    assert (email.template_version, email.retries, email.generation) == (1, 0, 0)


def test_a_plain_insert_for_later_waits(queue: Queue, clock: Clock) -> None:
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, next_retry_at)"
        " VALUES ('welcome_user', 'ana@example.com', mailgres.now() + interval '1 hour')"
    )
    assert queue.claim() == []
    clock.forward(HOUR)
    assert len(queue.claim()) == 1


def test_an_imported_history_is_counted(conn: psycopg.Connection) -> None:
    row = conn.execute(
        "INSERT INTO email_queue (template_type, recipient_email, status, error_message)"
        " VALUES ('news', 'a@example.com', 'cancelled', 'long ago') RETURNING id"
    ).fetchone()
    counts = "SELECT status, sum(emails)::int FROM mailgres.rollup_by_template GROUP BY status"
    conn.execute("SELECT mailgres.fold_rollups()")
    assert conn.execute(counts).fetchall() == [("cancelled", 1)]
    assert row is not None
    conn.execute("SELECT retry_email(%s)", row)
    conn.execute("SELECT mailgres.fold_rollups()")
    assert conn.execute(counts).fetchall() == [("cancelled", 0)]


def test_a_dead_email_put_back_by_hand_has_its_retries_again(conn: psycopg.Connection) -> None:
    conn.execute(
        "INSERT INTO email_queue (template_type, recipient_email, status, dead_at, dead_reason,"
        " error_message, retries) VALUES ('news', 'a@example.com', 'failed', now(), 'exhausted',"
        " 'it did not work', 3)"
    )
    conn.execute("UPDATE email_queue SET status = 'pending', next_retry_at = now()")
    assert conn.execute("SELECT status, retries FROM email_queue").fetchone() == ("pending", 0)


CONTRACT = (
    "INSERT INTO email_queue (user_id, template_type, recipient_email, payload, status, {})"
    " VALUES (gen_random_uuid(), 'welcome_user', 'ana@example.com', '{{}}', {}) RETURNING *"
)


def test_an_insert_as_sent_needs_the_columns_of_the_contract_only(
    queue: Queue, clock: Clock
) -> None:
    (email,) = queue.rows(CONTRACT.format("resend_id", "'sent', 're_1'"))
    assert (email.sent_at, email.provider_message_id) == (clock.now, "re_1")
    assert queue.claim() == []


def test_an_insert_as_failed_needs_the_columns_of_the_contract_only(
    queue: Queue, clock: Clock
) -> None:
    (email,) = queue.rows(CONTRACT.format("error_message", "'failed', 'no such mailbox'"))
    assert (email.dead_at, email.dead_reason) == (clock.now, "permanent")
    assert email.error_message == "no such mailbox"
    queue.run("SELECT retry_email(%s)", email.id)
    assert queue.claim_one().id == email.id


def test_an_insert_that_is_complete_is_kept_as_it_is(queue: Queue, clock: Clock) -> None:
    long_ago = clock.now - HOUR
    (email,) = queue.rows(
        CONTRACT.format(
            "sent_at, provider, provider_message_id, next_retry_at", "'sent', %s, 'ses', 'x', %s"
        ),
        *(long_ago, long_ago),
    )
    assert (email.sent_at, email.provider, email.next_retry_at) == (long_ago, "ses", long_ago)


@pytest.mark.parametrize("status", ["pending", "sent", "failed", "cancelled"])
def test_an_insert_with_next_retry_null_means_now(queue: Queue, clock: Clock, status: str) -> None:
    (email,) = queue.rows(CONTRACT.format("next_retry_at", f"'{status}', NULL"))
    assert (email.status, email.next_retry_at) == (status, clock.now)
    assert len(queue.claim()) == (status == "pending")


def test_an_insert_as_sending_is_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.errors.CheckViolation), queue.conn.transaction():
        queue.rows(CONTRACT.format("retries", "'sending', 0"))


def test_a_copy_into_the_queue_is_completed(queue: Queue, clock: Clock) -> None:
    columns = "template_type, recipient_email, status, resend_id, error_message, next_retry_at"
    with queue.conn.cursor().copy(f"COPY email_queue ({columns}) FROM STDIN") as copy:
        copy.write_row(("welcome_user", "ana@example.com", "sent", "re_1", None, None))
        copy.write_row(("welcome_user", "bea@example.com", "failed", None, None, None))
    found = {row.status: row for row in queue.rows("SELECT * FROM email_queue")}
    assert found["sent"].sent_at == found["failed"].dead_at == clock.now
