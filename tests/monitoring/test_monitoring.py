"""The list of the views: each has its question, its columns explained, and an example that runs."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from monitoring.answers import ANSWERS
from security.conftest import acting_as
from support.grants import ANALYST, ANALYSTS_VIEWS, OPERATOR, WORKER
from support.queue import Clock, Queue

COLUMNS = """
    SELECT c.relname || '.' || a.attname AS name
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'
      AND c.relname IN (SELECT name FROM email_monitoring)
      AND col_description(c.oid, a.attnum) IS NULL
"""
# Asked elsewhere: what is neither counted nor a row of the queue.
OTHERS = {
    "email_alerts",
    "email_eta",
    "email_monitoring",
    "email_providers",
    "email_time_between_attempts",
    "email_workers",
}
CLOSED_TO_WORKERS = {
    *("email_retried", "email_recipients", "email_common_errors", "email_dlq_entries"),
    "email_deliveries",
}
"""They show rows of the queue, which workers do not read."""


def names(queue: Queue) -> set[str]:
    return {row.name for row in queue.rows("SELECT name FROM email_monitoring")}


def test_every_view_is_listed_in_email_monitoring(queue: Queue) -> None:
    assert {f"public.{name}" for name in names(queue)} == ANALYSTS_VIEWS | {"public.email_alerts"}


def test_every_view_is_compared_with_the_emails(queue: Queue) -> None:
    assert names(queue) == ANSWERS.keys() | OTHERS


def test_every_view_has_a_question_and_an_example(queue: Queue) -> None:
    for view in queue.rows("SELECT * FROM email_monitoring"):
        assert view.question.endswith("?"), view.name
        assert view.example.startswith("SELECT "), view.name
        assert f"FROM {view.name}" in view.example
        assert view.example.endswith(";")


def test_every_column_of_a_view_has_a_comment(queue: Queue) -> None:
    assert queue.rows(COLUMNS) == []


@pytest.mark.parametrize("role", [ANALYST, OPERATOR, WORKER])
def test_the_example_of_every_view_runs(queue: Queue, role: str) -> None:
    queue.enqueue()
    queue.attempt("permanent")
    for view in queue.rows("SELECT * FROM email_monitoring"):
        if role == WORKER and view.name in CLOSED_TO_WORKERS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), acting_as(queue, role):
                queue.run(view.example)
            continue
        with acting_as(queue, role):
            queue.run(view.example)


def test_no_view_for_analysts_shows_personal_data(queue: Queue, clock: Clock) -> None:
    """Whatever an analyst asks, no address, name or subject comes back."""
    queue.use_provider("resend")
    queue.enqueue(recipient_email="ana.secret@example.com", payload={"name": "Secretson"})
    queue.attempt("transient", message="ana.secret@example.com is busy", detail="Secretson")
    clock.forward(timedelta(hours=2))
    queue.attempt("permanent", message="no mailbox ana.secret@example.com", account=True)
    with acting_as(queue, ANALYST):
        for name in names(queue):
            for row in queue.rows(f"SELECT * FROM {name}"):
                assert "secret" not in repr(row).lower(), name
        assert queue.value("SELECT recipient FROM email_dlq_entries") == "a***@example.com"
        assert queue.value("SELECT recipient FROM email_retried") == "a***@example.com"


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("ana@example.com", "a***@example.com"),
        ("a@example.com", "***@example.com"),
        ("Ünal@bücher.example", "Ü***@bücher.example"),
        ("no address", "***"),
        ("a@b@c", "***"),
        ("@example.com", "***"),
        ("", "***"),
        (None, None),
    ],
)
def test_mask_email_hides_the_local_part(
    queue: Queue, address: str | None, masked: str | None
) -> None:
    assert queue.value("SELECT mailgres.mask_email(%s)", address) == masked
