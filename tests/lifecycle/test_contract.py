"""The calls and queries that people already have, word for word."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from support.postgres import run_script
from support.queue import Queue

USER = "8d1b1c5e-5f0a-4f2e-9f0e-0a4b6c1d2e3f"
CALL = f"""
SELECT enqueue_email('{USER}'::uuid, 'welcome_user', 'ana@example.com', '{{"name": "Ana"}}'::jsonb);
"""
PENDING = """
SELECT template_type, COUNT(*) AS pending_count, AVG(retries) AS avg_retries FROM email_queue WHERE status = 'pending' GROUP BY template_type;
"""  # noqa: E501
RECOVERY = """
SELECT retries, COUNT(*) AS count, COUNT(CASE WHEN status = 'sent' THEN 1 END) AS eventually_sent FROM email_queue WHERE retries > 0 GROUP BY retries ORDER BY retries;
"""  # noqa: E501
UNKNOWN = "SELECT mark_email_failed('00000000-0000-0000-0000-000000000000'::uuid, 'test');"
PROCESS = "SELECT * FROM process_pending_emails_for_retry(10);"


def test_enqueue_takes_the_four_arguments_of_the_contract(queue: Queue) -> None:
    queue_id = queue.value(CALL)
    email = queue.email(queue_id)
    assert (email.user_id, email.template_type) == (UUID(USER), "welcome_user")
    assert (email.recipient_email, email.payload) == ("ana@example.com", {"name": "Ana"})
    assert (email.status, email.retries, email.max_retries) == ("pending", 0, 3)
    assert queue_id.version == 7


def test_the_documented_query_counts_pending_by_template(queue: Queue) -> None:
    for template in ("welcome_user", "welcome_user", "signup_confirmation"):
        queue.enqueue(template)
    queue.run("UPDATE email_queue SET retries = 1 WHERE template_type = 'signup_confirmation'")
    rows = {row.template_type: (row.pending_count, row.avg_retries) for row in queue.rows(PENDING)}
    assert rows == {"welcome_user": (2, 0), "signup_confirmation": (1, 1)}


def test_the_documented_query_shows_recovery_by_retries(queue: Queue) -> None:
    for retries, status in [(0, "sent"), (1, "sent"), (1, "failed"), (2, "sent"), (2, "pending")]:
        queue_id = queue.enqueue()
        queue.run(
            "UPDATE email_queue SET retries = %s, status = %s WHERE id = %s",
            *(retries, status, queue_id),
        )
    assert queue.rows(RECOVERY) == [(1, 2, 1), (2, 2, 1)]


def test_marking_an_unknown_email_returns_false(queue: Queue) -> None:
    assert queue.value(UNKNOWN) is False


def test_processors_get_the_columns_of_the_contract(queue: Queue) -> None:
    queue_id = queue.value(CALL)
    assert queue.rows(PROCESS) == [
        (queue_id, UUID(USER), "welcome_user", "ana@example.com", {"name": "Ana"}, 0)
    ]
    assert queue.rows(PROCESS) == []


@pytest.mark.parametrize("template_type", ["welcome_user", "signup_confirmation"])
def test_the_starter_templates_have_every_part(committed: Queue, template_type: str) -> None:
    versions = committed.rows(
        "SELECT v.* FROM mailgres.template_versions v JOIN email_templates t"
        " ON (t.template_type, t.active_version) = (v.template_type, v.version)"
        " WHERE t.template_type = %s",
        template_type,
    )
    assert "en" in {version.locale for version in versions}
    for version in versions:
        assert version.subject
        assert version.html
        assert version.text
    assert committed.email(committed.enqueue(template_type)).template_type == template_type


def test_the_documented_statements_run_in_psql(database_url: str) -> None:
    """As the documents show it."""
    script = "\n".join([CALL, PENDING, RECOVERY, UNKNOWN, PROCESS])
    output = run_script(database_url, script, "-At", "-v", "ON_ERROR_STOP=1")
    queue_id, pending, failed, processed = output.splitlines()
    assert UUID(queue_id).version == 7
    assert pending.startswith("welcome_user|1|0.0")
    assert failed == "f"
    assert processed == f'{queue_id}|{USER}|welcome_user|ana@example.com|{{"name": "Ana"}}|0'


def test_own_content_needs_no_template(queue: Queue) -> None:
    queue.enqueue("receipt", subject="Your receipt", html="<p>Thank you</p>")
    claimed = queue.claim_one()
    assert (claimed.subject, claimed.html) == ("Your receipt", "<p>Thank you</p>")
    assert claimed.template_version is None


def test_enqueue_is_part_of_the_transaction(committed: Queue) -> None:
    with committed.conn.transaction(force_rollback=True):
        committed.enqueue(idempotency_key=str(uuid4()))
    assert committed.rows("SELECT id FROM email_queue") == []
