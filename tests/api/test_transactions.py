"""On every kind of connection: in the caller's transaction, which stays the caller's."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

import mailgres
from mailgres import errors
from support.sources import Source

ANA = "ana.secret@example.com"
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(autouse=True)
def _application(conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE orders (id int)")


def seen(conn: psycopg.Connection) -> tuple[int, ...]:
    """Return what another connection sees: emails, log entries, the application's own rows."""
    row = conn.execute(
        "SELECT (SELECT count(*) FROM email_queue), (SELECT count(*) FROM orders)"
    ).fetchone()
    assert row is not None
    return row


def status(conn: psycopg.Connection, email: UUID) -> str:
    row = conn.execute("SELECT status FROM email_queue WHERE id = %s", [email]).fetchone()
    assert row is not None
    return str(row[0])


def test_a_commit_keeps_the_email_with_the_rows_of_the_application(
    source: Source, conn: psycopg.Connection
) -> None:
    source.execute("INSERT INTO orders VALUES (1)")
    email = source.call(mailgres.enqueue, "welcome_user", ANA, {"name": "Ana"})
    assert seen(conn) == (0, 0)
    source.commit()
    assert seen(conn) == (1, 1)
    assert type(email) is UUID
    found = conn.execute("SELECT id, recipient_email, payload FROM email_queue").fetchone()
    assert found == (email, ANA, {"name": "Ana"})


def test_in_a_pipeline_the_ids_are_returned_all_the_same(
    database_url: str, conn: psycopg.Connection
) -> None:
    several: list[mailgres.Email] = [{"template_type": "welcome_user", "recipient_email": ANA}] * 2
    with psycopg.connect(database_url) as connection, connection.pipeline():
        one = mailgres.enqueue(connection, "welcome_user", ANA)
        ids = [one, *mailgres.enqueue_many(connection, several)]
        assert mailgres.cancel(connection, one)
    found = conn.execute("SELECT id FROM email_queue ORDER BY id").fetchall()
    assert sorted(ids) == [queue_id for (queue_id,) in found]


def test_a_rollback_leaves_neither_order_nor_email(
    source: Source, conn: psycopg.Connection
) -> None:
    source.execute("INSERT INTO orders VALUES (1)")
    source.call(mailgres.enqueue, "welcome_user", ANA)
    source.call(mailgres.enqueue_many, [{"template_type": "welcome_user", "recipient_email": ANA}])
    source.rollback()
    source.commit()
    assert seen(conn) == (0, 0)


def test_a_refusal_does_not_end_the_transaction(source: Source, conn: psycopg.Connection) -> None:
    source.execute("INSERT INTO orders VALUES (1)")
    source.execute("SAVEPOINT before")
    with pytest.raises(errors.UnknownTemplate) as caught:
        source.call(mailgres.enqueue, "no_such_template", ANA)
    source.execute("ROLLBACK TO SAVEPOINT before")
    source.call(mailgres.enqueue, "welcome_user", ANA)
    assert seen(conn) == (0, 0)
    source.commit()
    assert seen(conn) == (1, 1)
    assert "no_such_template" in caught.value.message
    assert "welcome_user" in str(caught.value.hint)


def test_a_refusal_does_not_show_the_recipient(source: Source) -> None:
    with pytest.raises(errors.InvalidPriority) as caught:
        source.call(mailgres.enqueue, "welcome_user", ANA, priority=10)
    assert ANA not in "".join(traceback.format_exception(caught.value))


def test_what_is_not_ours_stays_the_drivers_without_the_recipient(source: Source) -> None:
    source.execute("SET LOCAL ROLE mailgres_analyst")
    with pytest.raises(Exception, match="permission denied") as caught:
        source.call(mailgres.enqueue, "welcome_user", ANA)
    assert not isinstance(caught.value, errors.MailgresError)
    assert ANA not in "".join(traceback.format_exception(caught.value))


def test_enqueue_many_returns_ids_in_order(source: Source, conn: psycopg.Connection) -> None:
    people = [f"person{number}@example.com" for number in range(25)]
    ids = source.call(
        mailgres.enqueue_many,
        ({"template_type": "welcome_user", "recipient_email": one} for one in people),
    )
    source.commit()
    rows = conn.execute("SELECT id, recipient_email FROM email_queue")
    found = {row[0]: row[1] for row in rows}
    assert [found[email] for email in ids] == people
    assert all(type(email) is UUID for email in ids)


def test_the_same_key_again_returns_the_first_id(source: Source, conn: psycopg.Connection) -> None:
    def again() -> UUID:
        found = source.call(mailgres.enqueue, "welcome_user", ANA, idempotency_key="order-1")
        assert isinstance(found, UUID)
        return found

    first = again()
    assert again() == first
    source.commit()
    assert again() == first
    source.commit()
    assert seen(conn) == (1, 0)


def test_actions_work_in_the_transaction_of_the_caller(
    source: Source, conn: psycopg.Connection
) -> None:
    email = source.call(mailgres.enqueue, "welcome_user", ANA)
    assert source.call(mailgres.reschedule, email, TOMORROW) is True
    assert source.call(mailgres.cancel, str(email), "not wanted") is True
    assert source.call(mailgres.cancel, email) is False
    source.commit()
    row = conn.execute("SELECT status, error_message, scheduled_for FROM email_queue").fetchone()
    assert row == ("cancelled", "not wanted", TOMORROW)
    assert source.call(mailgres.retry, email, accept_duplicate=True) is True
    assert status(conn, email) == "cancelled"
    source.commit()
    assert status(conn, email) == "pending"
