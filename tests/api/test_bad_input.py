"""Bad input: refused with its SQLSTATE, a message and a hint, by every way in, leaving nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import mailgres
from mailgres.errors import MailgresError
from support.bad_input import ADDRESSES, BAD_ACTIONS, BAD_EMAILS, GOOD, PYTHON, SQL, Bad, Way
from support.postgres import Server

ANA = "ana.secret@example.com"


@pytest.fixture(scope="module")
def queue(server: Server, template: str) -> Iterator[psycopg.Connection]:
    """A database with a few templates and an email with a key, for all that changes nothing."""
    with server.database(template) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO email_templates (template_type, required_variables, retired_at)"
            " VALUES ('demanding', '{a,b,c}', NULL), ('retired', '{}', now())"
        )
        mailgres.enqueue(connection, "welcome_user", "first@example.com", idempotency_key="used")
        yield connection


def arrange(conn: psycopg.Connection, status: str | None) -> UUID:
    """Bring an email to where an action is refused; without a status, make none."""
    if status is None:
        return uuid4()
    conn.execute("DELETE FROM email_queue")
    email = mailgres.enqueue(conn, "welcome_user", ANA)
    if status == "sent":
        conn.execute("SELECT mark_email_sent(%s, 'provider-1')", [email])
    elif status != "pending":
        token = claim(conn)
        conn.execute("SELECT mailgres.start_attempts(%s, %s)", [token, [email]])
        if status == "uncertain":
            conn.execute("UPDATE mailgres.providers SET idempotent = false")
            finish(conn, email, token, outcome="uncertain", message="may have arrived")
    return email


def claim(conn: psycopg.Connection) -> UUID:
    row = conn.execute("SELECT lease_token FROM mailgres.claim('worker-1')").fetchone()
    assert row is not None
    assert isinstance(row[0], UUID)
    return row[0]


def finish(conn: psycopg.Connection, email: UUID, token: UUID, **reported: Any) -> list[Any]:
    outcome = Jsonb([{"id": str(email), "token": str(token), **reported}])
    query = "SELECT status, refused FROM mailgres.finish(%s)"
    return conn.execute(query, [outcome]).fetchall()


def contents(conn: psycopg.Connection) -> list[Any]:
    """Everything that a call might have written."""
    return [
        conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1, 2").format(table)).fetchall()
        for table in (
            sql.Identifier("email_queue"),
            sql.Identifier("email_logs"),
            sql.Identifier("email_suppressions"),
            sql.Identifier("mailgres", "attachments"),
        )
    ]


def each(table: list[Bad]) -> pytest.MarkDecorator:
    rows = [(bad, way) for bad in table for way in bad.ways]
    names = [f"{bad.name}-{way.__name__}" for bad, way in rows]
    return pytest.mark.parametrize(("bad", "way"), rows, ids=names)


def check(
    conn: psycopg.Connection, sqlstate: str, call: Callable[[], object], *secret: Any
) -> None:
    """See that a call is refused as it should be, and leaves nothing behind."""
    before = contents(conn)
    with pytest.raises((psycopg.Error, MailgresError)) as caught:
        call()
    error = caught.value
    assert isinstance(error, psycopg.Error | MailgresError)
    assert error.sqlstate == sqlstate
    message, hint = (
        (error.message, error.hint)
        if isinstance(error, MailgresError)
        else (error.diag.message_primary, error.diag.message_hint)
    )
    assert message
    assert hint
    shown = "".join(traceback.format_exception_only(error))
    for one in filter(None, (ANA, *secret)):
        assert str(one) not in f"{message} {hint} {shown}"
        assert repr(one) not in f"{message} {hint} {shown}"
    assert contents(conn) == before


@each(BAD_EMAILS)
def test_enqueue_refuses_bad_input_with_its_sqlstate(
    queue: psycopg.Connection, bad: Bad, way: Way
) -> None:
    email = {"template_type": "welcome_user", "recipient_email": ANA, **bad.fields}
    check(queue, bad.sqlstate, lambda: way(queue, email), email["recipient_email"])


@each(BAD_ACTIONS)
def test_actions_refuse_bad_input_with_their_sqlstate(
    conn: psycopg.Connection, bad: Bad, way: Way
) -> None:
    email = arrange(conn, bad.fields.get("is"))
    check(conn, bad.sqlstate, lambda: way(conn, email))


@pytest.mark.parametrize("given", ["no uuid", 5, "6f9619ff\0"])
def test_actions_refuse_values_that_are_not_ids(queue: psycopg.Connection, given: Any) -> None:
    for act in (mailgres.cancel, mailgres.retry):
        check(queue, "MG020", lambda act=act: act(queue, given))  # type: ignore[misc]


def test_cancel_refuses_a_reason_with_a_nul_character(conn: psycopg.Connection) -> None:
    email = arrange(conn, "pending")
    check(conn, "MG015", lambda: mailgres.cancel(conn, email, "a\0b"))


@pytest.mark.parametrize("outcome", ["sent", "transient", "permanent", "ambiguous"])
def test_finish_refuses_a_stale_token_with_a_sqlstate(
    conn: psycopg.Connection, outcome: str
) -> None:
    email = arrange(conn, "pending")
    stale = claim(conn)
    conn.execute("SELECT mailgres.give_back(%s, %s)", [stale, [email]])
    conn.execute("UPDATE email_queue SET next_retry_at = mailgres.now(), ready = true")
    current = claim(conn)
    before = contents(conn)
    reported = {"outcome": outcome, "provider_message_id": "provider-1"}
    for token in (stale, uuid4()):
        assert finish(conn, email, token, **reported) == [(None, "MG030")]
        assert contents(conn) == before
    assert finish(conn, email, current, outcome="sent", provider_message_id="provider-2") == [
        ("sent", None)
    ]


@pytest.mark.parametrize(
    "outcomes",
    [
        None,
        "{}",
        "5",
        "[5]",
        "[{}]",
        '[{"outcome": "lost"}]',
        '[{"outcome": "sent"}]',
        '[{"outcome": "sent", "provider_message_id": ""}]',
        '[{"outcome": "sent", "provider_message_id": null}]',
        '[{"outcome": ["sent"], "provider_message_id": "x"}]',
    ],
)
def test_finish_refuses_unknown_outcomes_with_a_sqlstate(
    queue: psycopg.Connection, outcomes: str | None
) -> None:
    check(queue, "MG031", lambda: queue.execute("SELECT mailgres.finish(%s::jsonb)", [outcomes]))


def test_nul_cannot_even_be_written_in_sql(queue: psycopg.Connection) -> None:
    """The rows of the table that are for Python only: PostgreSQL has no such text."""
    before = contents(queue)
    for statement in (
        "SELECT enqueue_email(NULL, 'welcome_user', 'a' || chr(0) || '@example.com')",
        "SELECT enqueue_email(NULL, 'welcome_user', E'a\\000@example.com')",
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', '{\"name\": \"\\u0000\"}')",
        'SELECT enqueue_emails(\'[{"recipient_email": "a\\u0000@example.com"}]\')',
    ):
        with pytest.raises(psycopg.Error) as caught:
            queue.execute(statement.encode())
        assert caught.value.sqlstate in {"22021", "22P05", "54000"}
    assert contents(queue) == before


@pytest.mark.parametrize("way", SQL + PYTHON)
@pytest.mark.parametrize("address", ADDRESSES)
def test_unusual_but_valid_addresses_are_accepted(
    queue: psycopg.Connection, address: str, way: Way
) -> None:
    way(queue, {"template_type": "welcome_user", "recipient_email": address})
    row = queue.execute(
        "SELECT recipient_email FROM email_queue ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert row == (address,)


@pytest.mark.parametrize("way", SQL + PYTHON)
@pytest.mark.parametrize("name", GOOD)
def test_values_at_their_bounds_are_accepted(
    queue: psycopg.Connection, name: str, way: Way
) -> None:
    way(queue, {"template_type": "welcome_user", "recipient_email": ANA, **GOOD[name]})
