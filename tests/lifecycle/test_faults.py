"""Rare moments at which an email could be lost, sent twice or stuck."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from support.postgres import Connect

EVENT = "SELECT record_email_event('ses', %s, 'message-1', %s)"


@pytest.fixture
def keyless(conn: psycopg.Connection) -> psycopg.Connection:
    """The route leads to a provider without keys, and uncertain emails are sent again."""
    conn.execute("INSERT INTO mailgres.providers (name, kind) VALUES ('ses', 'ses')")
    conn.execute("UPDATE mailgres.route_providers SET provider = 'ses'")
    conn.execute("UPDATE email_templates SET on_uncertain = 'resend'")
    return conn


def enqueue(conn: psycopg.Connection) -> UUID:
    row = conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com')").fetchone()
    assert row is not None
    return UUID(str(row[0]))


def claim(conn: psycopg.Connection) -> list[UUID]:
    """Claim; gives the tokens."""
    return [row[0] for row in conn.execute("SELECT lease_token FROM mailgres.claim('worker')")]


def finish(conn: psycopg.Connection, outcome: str) -> None:
    conn.execute(
        "SELECT mailgres.finish(jsonb_build_array(jsonb_build_object("
        "'id', id, 'token', lease_token, 'outcome', %s::text))) FROM email_queue",
        (outcome,),
    )


def column(conn: psycopg.Connection, name: str) -> Any:
    row = conn.execute(f"SELECT {name} FROM email_queue").fetchone()
    assert row is not None
    return row[0]


def test_delivered_during_the_call_is_not_sent_again(keyless: psycopg.Connection) -> None:
    queue_id = enqueue(keyless)
    [token] = claim(keyless)
    keyless.execute("SELECT mailgres.start_attempts(%s, %s)", (token, [queue_id]))
    keyless.execute(EVENT, ("delivered", queue_id))
    assert column(keyless, "status") == "sent"


def test_a_call_is_not_begun_under_a_lease_that_has_ended(keyless: psycopg.Connection) -> None:
    queue_id = enqueue(keyless)
    [token] = claim(keyless)
    keyless.execute("UPDATE email_queue SET lease_until = now() - interval '1 second'")
    started = keyless.execute(
        "SELECT mailgres.start_attempts(%s, %s)", (token, [queue_id])
    ).fetchall()
    assert started == []
    assert column(keyless, "status") == "pending"


def test_a_call_that_begins_late_has_a_whole_lease(keyless: psycopg.Connection) -> None:
    queue_id = enqueue(keyless)
    [token] = claim(keyless)
    keyless.execute(
        "UPDATE email_queue SET leased_at = now() - interval '59 seconds',"
        " lease_until = now() + interval '1 second'"
    )
    keyless.execute("SELECT mailgres.start_attempts(%s, %s)", (token, [queue_id]))
    assert column(keyless, "lease_until - attempt_started_at >= interval '59 seconds'")


def test_the_key_window_starts_at_the_first_uncertain_attempt(conn: psycopg.Connection) -> None:
    enqueue(conn)
    claim(conn)
    conn.execute("UPDATE email_queue SET first_attempt_at = now() - interval '2 days'")
    finish(conn, "ambiguous")
    assert column(conn, "status") == "pending", "days of waiting for a quota do not kill it"


def test_an_email_freed_by_hand_during_its_call_is_uncertain(keyless: psycopg.Connection) -> None:
    queue_id = enqueue(keyless)
    [token] = claim(keyless)
    keyless.execute("SELECT mailgres.start_attempts(%s, %s)", (token, [queue_id]))
    keyless.execute("UPDATE email_queue SET status = 'pending'")
    assert column(keyless, "uncertain_since") is not None


def test_a_refusal_settles_no_earlier_attempt_without_a_key(
    keyless: psycopg.Connection,
) -> None:
    enqueue(keyless)
    claim(keyless)
    finish(keyless, "ambiguous")
    keyless.execute("UPDATE email_queue SET next_retry_at = now()")
    claim(keyless)
    finish(keyless, "permanent")
    assert column(keyless, "dead_reason") == "uncertain"


def test_a_policy_that_is_gone_leaves_the_default(conn: psycopg.Connection) -> None:
    enqueue(conn)
    conn.execute("UPDATE email_queue SET retry_policy = 'gone'")
    claim(conn)
    finish(conn, "transient")
    assert column(conn, "next_retry_at > now() + interval '50 seconds'")


def test_a_route_that_does_not_exist_is_the_default(conn: psycopg.Connection) -> None:
    conn.execute(
        "INSERT INTO email_queue (template_type, recipient_email, route)"
        " VALUES ('welcome_user', 'a@example.com', 'misspelt')"
    )
    assert len(claim(conn)) == 1


def test_an_uncertain_email_whose_provider_no_worker_has_becomes_dead(
    conn: psycopg.Connection,
) -> None:
    conn.execute(
        "INSERT INTO mailgres.providers (name, kind, idempotent) VALUES ('old', 'resend', true)"
    )
    enqueue(conn)
    claim(conn)
    finish(conn, "ambiguous")
    conn.execute(
        "UPDATE email_queue SET provider = 'old', next_retry_at = now(),"
        " uncertain_since = now() - interval '2 days'"
    )
    conn.execute("SELECT mailgres.claim('worker', 10, '1 minute', '{capture}')")
    assert (column(conn, "status"), column(conn, "dead_reason")) == ("failed", "uncertain")


def test_an_old_processor_gets_nothing_with_a_file(conn: psycopg.Connection) -> None:
    conn.execute(
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_attachments =>"
        """ '[{"filename": "a.txt", "content": "aGk="}]')"""
    )
    conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_cc => '{b@c.de}')")
    assert conn.execute("SELECT * FROM process_pending_emails_for_retry()").fetchall() == []


def test_an_idempotency_key_whose_email_is_deleted_meanwhile_is_used_again(
    conn: psycopg.Connection, connect: Connect
) -> None:
    """The id of an email that was never stored must not come back."""
    enqueue_k = (
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_idempotency_key => 'k')"
    )
    conn.execute(enqueue_k)
    conn.execute(
        "CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN DELETE FROM public.email_queue; RETURN NULL; END'"
    )
    conn.execute(
        "CREATE TRIGGER gone AFTER INSERT ON email_queue FOR EACH STATEMENT EXECUTE FUNCTION gone()"
    )
    with pytest.raises(psycopg.errors.SerializationFailure):
        connect().execute(enqueue_k)
