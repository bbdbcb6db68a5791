"""What must hold in each status is refused otherwise, whoever writes it."""

from __future__ import annotations

import psycopg
import pytest

from support.queue import Queue

LEASE = (
    "lease_token = gen_random_uuid(), leased_at = now(), lease_until = now(), lease_worker = 'w'"
)
DEAD = "status = 'failed', dead_at = now(), dead_reason = 'permanent', error_message = 'no'"

REFUSED = {
    "unknown status": "status = 'processing'",
    "no status": "status = NULL",
    "negative retries": "retries = -1",
    "negative max_retries": "max_retries = -1",
    "negative generation": "generation = -1",
    "negative lease losses": "lease_losses = -1",
    "priority 0": "priority = 0",
    "priority 10": "priority = 10",
    "empty tenant": "tenant_id = ''",
    "no template": "template_type = NULL",
    "no recipient": "recipient_email = NULL",
    "no payload": "payload = NULL",
    "no creation": "created_at = NULL",
    "unknown dead reason": "dead_reason = 'tired'",
    "unknown error class": "error_class = 'odd'",
    "pending with a lease": LEASE,
    "pending and dead": "dead_at = now()",
    "sending without a lease": "status = 'sending', ready = false",
    "sending without a token": f"status = 'sending', ready = false, {LEASE}, lease_token = NULL",
    "sending without an end": f"status = 'sending', ready = false, {LEASE}, lease_until = NULL",
    "sending without a start": f"status = 'sending', ready = false, {LEASE}, leased_at = NULL",
    "sending for nobody": f"status = 'sending', ready = false, {LEASE}, lease_worker = NULL",
    "sending and ready": f"status = 'sending', {LEASE}",
    "sent without a time": "status = 'sent', ready = false",
    "sent by a provider without its id": (
        "status = 'sent', ready = false, sent_at = now(), provider = 'resend'"
    ),
    "sent with a lease": f"status = 'sent', ready = false, sent_at = now(), {LEASE}",
    "sent and dead": "status = 'sent', ready = false, sent_at = now(), dead_at = now()",
    "sent and ready": "status = 'sent', sent_at = now()",
    "failed without a time": f"{DEAD}, ready = false, dead_at = NULL",
    "failed without a reason": f"{DEAD}, ready = false, dead_reason = NULL",
    "failed without a message": f"{DEAD}, ready = false, error_message = NULL",
    "failed with an empty message": f"{DEAD}, ready = false, error_message = ''",
    "failed with a lease": f"{DEAD}, ready = false, {LEASE}",
    "failed and ready": DEAD,
    "cancelled with a lease": f"status = 'cancelled', ready = false, {LEASE}",
    "cancelled and dead": "status = 'cancelled', ready = false, dead_at = now()",
    "cancelled and ready": "status = 'cancelled'",
}

ACCEPTED = {
    "pending": "status = 'pending'",
    "waiting": "ready = false",
    "sending": f"status = 'sending', ready = false, {LEASE}",
    "sent by hand": "status = 'sent', ready = false, sent_at = now()",
    "sent": (
        "status = 'sent', ready = false, sent_at = now(), provider = 'ses',"
        " provider_message_id = 'x'"
    ),
    "failed": f"{DEAD}, ready = false",
    "cancelled": "status = 'cancelled', ready = false",
}


def columns(assignments: str) -> str:
    """An UPDATE in which a later assignment replaces an earlier one of the same column."""
    last = dict(part.split(" = ", 1) for part in assignments.split(", "))
    return "UPDATE email_queue SET " + ", ".join(f"{key} = {value}" for key, value in last.items())


@pytest.fixture
def unfixed(queue: Queue) -> Queue:
    """A queue with one email, and without the trigger that completes changes made by hand."""
    queue.run("ALTER TABLE email_queue DISABLE TRIGGER normalize_manual_update")
    queue.enqueue()
    return queue


@pytest.mark.parametrize("assignments", REFUSED.values(), ids=REFUSED.keys())
def test_the_queue_refuses_contradicting_columns(unfixed: Queue, assignments: str) -> None:
    with pytest.raises(psycopg.errors.IntegrityError) as refusal, unfixed.conn.transaction():
        unfixed.run(columns(assignments))
    assert isinstance(
        refusal.value, psycopg.errors.CheckViolation | psycopg.errors.NotNullViolation
    )


@pytest.mark.parametrize("assignments", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_the_queue_accepts_consistent_columns(unfixed: Queue, assignments: str) -> None:
    unfixed.run(columns(assignments))


@pytest.mark.parametrize(
    ("table", "assignments"),
    [
        ("mailgres.retry_policies", "max_retries = -1"),
        ("mailgres.retry_policies", "max_retries = 101"),
        ("mailgres.retry_policies", "steps = '{}', base = NULL"),
        ("mailgres.retry_policies", "steps = '{1 minute,NULL}', base = NULL"),
        ("mailgres.retry_policies", "steps = NULL, base = NULL"),
        ("mailgres.retry_policies", "steps = '{1 minute}', base = '1 minute'"),
        ("mailgres.retry_policies", "cap = '0'"),
        ("mailgres.retry_policies", "factor = 0.5"),
        ("mailgres.retry_policies", "jitter_up = 1.5"),
        ("mailgres.retry_policies", "jitter_down = -0.1"),
        ("mailgres.settings", "only_row = false"),
        ("mailgres.settings", "max_lease_losses = 0"),
        ("mailgres.settings", "retry_policy = 'none such'"),
        ("mailgres.providers", "kind = 'Carrier pigeon'"),
        ("mailgres.providers", "circuit = 'ajar'"),
        ("mailgres.route_providers", "provider = 'none such'"),
        ("email_templates", "on_uncertain = 'guess'"),
        ("email_templates", "priority = 10"),
        ("email_templates", "retry_policy = 'none such'"),
        ("email_templates", "route = 'none such'"),
    ],
)
def test_settings_and_policies_refuse_bad_values(
    queue: Queue, table: str, assignments: str
) -> None:
    with pytest.raises(psycopg.errors.IntegrityError), queue.conn.transaction():
        queue.run(f"UPDATE {table} SET {assignments}")


def test_a_second_row_of_settings_is_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation), queue.conn.transaction():
        queue.run("INSERT INTO mailgres.settings (retry_policy) VALUES ('stepped')")


def test_suppressions_refuse_bad_values(queue: Queue) -> None:
    statement = "INSERT INTO email_suppressions (recipient_email, reason) VALUES (%s, %s)"
    with pytest.raises(psycopg.errors.CheckViolation), queue.conn.transaction():
        queue.run(statement, "ana@example.com", "bored")


def test_no_table_is_unlogged(queue: Queue) -> None:
    unlogged = queue.rows(
        "SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname IN ('public', 'mailgres') AND c.relpersistence <> 'p'"
    )
    assert unlogged == []


def test_the_queue_has_at_most_six_indexes(queue: Queue) -> None:
    assert (
        queue.value("SELECT count(*) FROM pg_index WHERE indrelid = 'email_queue'::regclass") <= 6
    )
