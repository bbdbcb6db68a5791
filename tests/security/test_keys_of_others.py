"""An idempotency key says nothing about an email that is not the caller's."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from security.test_senders import producer, session_of
from support.queue import Queue

FOR_ANOTHER = (
    "SELECT enqueue_email(NULL, 'welcome_user', %(to)s, %(payload)s, 'other',"
    " p_idempotency_key => %(key)s)"
)
GUESSES = {
    "the right recipient": "ana.secret@example.com",
    "a wrong recipient": "bea@example.com",
}


def said(queue: Queue, query: str, *parameters: object) -> str:
    """Everything that a caller gets of an error, wherever a client shows it."""
    with pytest.raises(psycopg.Error) as raised, queue.conn.transaction():
        queue.run(query, *parameters)
    diag = raised.value.diag
    fields = (
        *(diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint),
        *(diag.context, diag.internal_query, diag.constraint_name, diag.table_name),
    )
    return " ".join(str(field) for field in fields)


def used_key(queue: Queue, tenant: str) -> str:
    """Enqueue an email of a tenant under the key `invoice-1`; returns its id."""
    return str(
        queue.enqueue(
            recipient_email=GUESSES["the right recipient"],
            payload={"name": "private"},
            tenant_id=tenant,
            idempotency_key="invoice-1",
        )
    )


@pytest.mark.parametrize("bulk", [False, True])
def test_the_error_about_a_used_key_reveals_neither_id_nor_content(
    queue: Queue,
    bulk: bool,  # noqa: FBT001
) -> None:
    first = used_key(queue, "default")
    email = {
        "template_type": "welcome_user",
        "recipient_email": GUESSES["a wrong recipient"],
        "idempotency_key": "invoice-1",
    }
    if bulk:
        reported = said(queue, "SELECT enqueue_emails(%s)", Jsonb([email]))
        assert "element 0" in reported
    else:
        reported = said(
            queue,
            "SELECT enqueue_email(NULL, 'welcome_user', %s, p_idempotency_key => 'invoice-1')",
            email["recipient_email"],
        )
    assert "MG009" in reported
    assert first not in reported
    assert "ana.secret" not in reported
    assert "private" not in reported


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("key", ["invoice-1", "never used"])
def test_a_bound_producer_learns_nothing_of_another_tenants_keys(
    queue: Queue, guess: str, key: str
) -> None:
    """Whether the key is known and the guess is right or not: word for word the same answer."""
    used_key(queue, "other")
    given = {"to": GUESSES[guess], "payload": Jsonb({"name": "private"}), "key": key}
    with (
        session_of(queue, producer(queue)),
        pytest.raises(psycopg.Error) as raised,
        queue.conn.transaction(),
    ):
        queue.conn.execute(FOR_ANOTHER, given)
    diag = raised.value.diag
    assert diag.sqlstate == "MG019"
    assert diag.message_primary == "this role may not enqueue for that tenant"
    assert diag.message_hint == (
        "It is bound to one tenant: leave tenant_id out. `mailgres producers list` shows which"
        " role is bound to which."
    )


@pytest.mark.parametrize("guess", GUESSES)
def test_a_bound_producers_own_key_is_not_that_of_another_tenant(queue: Queue, guess: str) -> None:
    first = used_key(queue, "other")
    with session_of(queue, producer(queue)):
        own = queue.enqueue(
            recipient_email=GUESSES[guess],
            payload={"name": "private"},
            idempotency_key="invoice-1",
        )
    assert str(own) != first
    assert queue.value("SELECT count(*) FROM email_queue") == 2
