"""Two-phase commit: a transaction that enqueues can be prepared, also while a worker sleeps."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from lifecycle.test_wake import Listener
from support.postgres import Connect
from support.queue import Queue

ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')"
LATER = (
    "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',"
    " p_scheduled_for => now() + interval '1 minute')"
)
ASLEEP = "SELECT mailgres.mark_asleep('w', '10 minutes')"
NAME = "mailgres two-phase"


def by_api(conn: psycopg.Connection) -> None:
    """As psycopg does it."""
    conn.autocommit = False
    conn.tpc_begin(conn.xid(1, NAME, "branch"))
    conn.execute(ENQUEUE)
    conn.execute(LATER)
    conn.tpc_prepare()
    conn.tpc_commit()


def by_statements(conn: psycopg.Connection) -> None:
    """As it is typed in psql."""
    conn.execute("BEGIN")
    conn.execute(ENQUEUE)
    conn.execute(f"PREPARE TRANSACTION '{NAME}'")
    conn.execute(f"COMMIT PREPARED '{NAME}'")


def in_one_message(conn: psycopg.Connection) -> None:
    """Several statements in one simple query."""
    conn.execute(f"BEGIN; {ENQUEUE}; {LATER}; prepare /* it */\n\ttransaction '{NAME}'".encode())
    conn.execute(f"COMMIT PREPARED '{NAME}'")


def as_a_prepared_statement(conn: psycopg.Connection) -> None:
    """By the extended protocol."""
    conn.execute("BEGIN")
    conn.execute(ENQUEUE, prepare=True)
    conn.execute(f"PREPARE TRANSACTION '{NAME}'", binary=True)
    conn.execute(f"COMMIT PREPARED '{NAME}'")


def in_serializable(conn: psycopg.Connection) -> None:
    """A stricter transaction cannot know who sleeps."""
    conn.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    conn.execute(ENQUEUE)
    conn.execute(f"PREPARE TRANSACTION '{NAME}'")
    conn.execute(f"COMMIT PREPARED '{NAME}'")


@pytest.fixture(autouse=True)
def _possible(conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()
    if row == (0,):
        pytest.skip("max_prepared_transactions is 0 on this server")


@pytest.mark.parametrize(
    "prepare",
    [by_api, by_statements, in_one_message, as_a_prepared_statement, in_serializable],
)
def test_a_transaction_that_enqueues_is_prepared_while_a_worker_sleeps(
    prepare: Callable[[psycopg.Connection], None], committed: Queue, connect: Connect
) -> None:
    committed.run(ASLEEP)
    prepare(connect())
    emails = committed.rows("SELECT status FROM email_queue")
    assert {email.status for email in emails} == {"pending"}
    assert committed.claim()[0].recipient_email == "ana@example.com", "the poll finds it"


def test_changes_of_emails_can_be_prepared(committed: Queue, connect: Connect) -> None:
    queue_id = committed.enqueue()
    committed.run(ASLEEP)
    conn = connect(autocommit=False)
    conn.tpc_begin(conn.xid(1, NAME, "branch"))
    conn.execute("SELECT cancel_email(%s)", (queue_id,))
    conn.execute("SELECT retry_email(%s)", (queue_id,))
    conn.tpc_prepare()
    conn.tpc_commit()
    assert committed.email(queue_id).status == "pending"


def test_every_other_transaction_still_wakes_the_worker(committed: Queue, connect: Connect) -> None:
    """Also one whose text speaks of preparing."""
    committed.run(ASLEEP)
    listener = Listener(connect(), connect())
    sender = connect()
    with sender.transaction():
        sender.execute(ENQUEUE)
    assert listener.heard() == 1
    sender.execute(f"{ENQUEUE} -- prepare the transaction's email".encode())
    assert listener.heard() == 1
    sender.execute("PREPARE enqueue AS " + ENQUEUE)
    sender.execute("EXECUTE enqueue")
    assert listener.heard() == 1
