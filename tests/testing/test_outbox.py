"""`mailgres.testing.Outbox`: what tests of applications rely on."""

from __future__ import annotations

import asyncio
import base64
import threading
from datetime import UTC, datetime, timedelta
from typing import Unpack

import psycopg
import pytest

import mailgres
from mailgres import EmailOptions
from mailgres.errors import MailgresError
from mailgres.testing import AsyncOutbox, EmailNotFound, Outbox

ANA = "ana@example.com"


def enqueue(conn: psycopg.Connection, to: str = ANA, **options: Unpack[EmailOptions]) -> None:
    mailgres.enqueue(conn, "welcome_user", to, {"name": "Ana"}, **options)


def test_an_outbox_has_what_was_enqueued_and_what_was_rendered(
    conn: psycopg.Connection, outbox: Outbox
) -> None:
    content = base64.b64encode(b"hello").decode()
    enqueue(
        conn,
        tenant_id="acme",
        cc=["bo@example.com"],
        headers={"X-Order": "7"},
        attachments=[{"filename": "a.txt", "content_type": "text/plain", "content": content}],
    )
    before = outbox.only(to=ANA)
    assert (before.status, before.payload, before.tenant) == ("pending", {"name": "Ana"}, "acme")
    assert (before.subject, before.text, before.html) == (None, None, None)
    assert outbox.drain().sent == 1
    after = outbox.only(template="welcome_user")
    assert after.is_sent
    assert after.id == before.id
    assert "Ana" in (after.text or "")
    assert "<" in (after.html or "")
    assert after.from_email == "Acme <hello@acme.example.com>"
    assert after.cc == ["bo@example.com"]
    assert after.headers == {"X-Order": "7"}
    assert after.attachments == ["a.txt"]
    assert after.events == ["sent"]
    assert [one.id for one in outbox] == [after.id]
    assert len(outbox) == 1


def test_an_email_of_an_open_transaction_is_not_in_the_outbox(
    database_url: str, outbox: Outbox
) -> None:
    with psycopg.connect(database_url) as connection:
        enqueue(connection)
        assert outbox.drain().claimed == 0
        with pytest.raises(EmailNotFound, match="or its transaction is not committed"):
            outbox.wait_for(to=ANA, timeout=0)
        connection.rollback()
    assert len(outbox) == 0


def test_wait_for_returns_the_newest_email(conn: psycopg.Connection, outbox: Outbox) -> None:
    enqueue(conn)
    first = outbox.wait_for(to=ANA.upper())
    enqueue(conn)
    assert outbox.wait_for(to=ANA).id > first.id
    with pytest.raises(EmailNotFound, match=f"There are 2 emails to {ANA}, not 1."):
        outbox.only(to=ANA)


def test_wait_for_lists_the_other_emails_if_none_matches(
    conn: psycopg.Connection, outbox: Outbox
) -> None:
    enqueue(conn, "bo@example.com")
    enqueue(conn, ANA, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(EmailNotFound) as found:
        outbox.wait_for(to=ANA, template="welcome_user", timeout=0)
    first, head, *lines = str(found.value).splitlines()
    assert first == f"No email to {ANA} of welcome_user was sent within 0 s."
    assert head == "The outbox has:"
    assert lines[0] == "  bo@example.com, welcome_user: sent"
    assert lines[1].startswith(f"  {ANA}, welcome_user: pending (next attempt at 20")
    assert isinstance(found.value, AssertionError)


def test_wait_for_waits_for_another_thread(database_url: str, outbox: Outbox) -> None:
    waiting = threading.Event()

    def later() -> None:
        with psycopg.connect(database_url) as connection:
            waiting.wait()
            enqueue(connection)

    thread = threading.Thread(target=later)
    thread.start()
    drain = outbox.drain

    def watched() -> object:
        done = drain()
        waiting.set()
        return done

    outbox.drain = watched  # type: ignore[method-assign, assignment]
    assert outbox.wait_for(to=ANA, timeout=60).is_sent
    thread.join()


def test_time_travel_makes_what_is_scheduled_due(conn: psycopg.Connection, outbox: Outbox) -> None:
    start = datetime(2030, 1, 1, 9, tzinfo=UTC)
    outbox.freeze(start)
    enqueue(conn, scheduled_for=start + timedelta(days=1))
    outbox.travel(timedelta(hours=23, minutes=59))
    assert outbox.drain().claimed == 0
    outbox.travel(timedelta(minutes=1))
    assert outbox.drain().sent == 1


def test_time_travel_lets_an_email_expire(conn: psycopg.Connection, outbox: Outbox) -> None:
    enqueue(conn, expires_at=datetime.now(UTC) + timedelta(hours=1))
    outbox.travel(timedelta(hours=2))
    assert outbox.drain().sent == 0
    assert outbox.only().dead_reason == "expired"


@pytest.mark.parametrize(
    ("fault", "status", "events"),
    [
        ("bounce", "sent", ["sent", "bounced"]),
        ("timeout", "pending", ["retry"]),
        ("reject", "failed", ["dead"]),
        ("unanswered", "pending", ["retry"]),
    ],
)
def test_fail_next_fails_one_email_and_not_the_one_after_it(
    conn: psycopg.Connection, outbox: Outbox, fault: str, status: str, events: list[str]
) -> None:
    outbox.fail_next(fault, to=ANA)  # type: ignore[arg-type]
    enqueue(conn, "bo@example.com")
    enqueue(conn)
    outbox.drain()
    assert outbox.only(to="bo@example.com").events == ["sent"]
    failed = outbox.only(to=ANA)
    assert (failed.status, failed.events) == (status, events)
    enqueue(conn, "cy@example.com")
    outbox.drain()
    assert outbox.only(to="cy@example.com").events == ["sent"]


def test_an_email_whose_answer_was_lost_is_repeated_with_its_key(
    conn: psycopg.Connection, outbox: Outbox
) -> None:
    """The provider sends it once."""
    outbox.fail_next("unanswered", template="welcome_user")
    enqueue(conn)
    assert outbox.drain().retried == 1
    outbox.travel(timedelta(hours=1))
    assert outbox.drain().sent == 1
    assert conn.execute("SELECT count(*) FROM mailgres.captured").fetchone() == (1,)


def test_fail_next_refuses_an_unknown_fault(outbox: Outbox) -> None:
    with pytest.raises(MailgresError, match="there is no such fault"):
        outbox.fail_next("explode")  # type: ignore[arg-type]


def test_clearing_the_outbox_leaves_nothing_of_an_earlier_test(
    conn: psycopg.Connection, outbox: Outbox
) -> None:
    outbox.fail_next("bounce")
    enqueue(conn)
    outbox.drain()
    outbox.fail_next("timeout")
    outbox.travel(timedelta(days=300))
    outbox.clear()
    assert len(outbox) == 0
    enqueue(conn)  # the address was suppressed
    assert outbox.wait_for(to=ANA).is_sent
    real = conn.execute("SELECT abs(extract(epoch FROM mailgres.now() - now())) < 1").fetchone()
    assert real == (True,)


def test_the_outbox_can_be_awaited(conn: psycopg.Connection, outbox: Outbox) -> None:
    async def story() -> None:
        awaited = AsyncOutbox(outbox)
        await awaited.freeze()
        await awaited.fail_next("timeout")
        await asyncio.to_thread(enqueue, conn)
        assert (await awaited.drain()).retried == 1
        await awaited.travel(timedelta(hours=1))
        assert (await awaited.wait_for(to=ANA)).retries == 1
        assert [one.to for one in await awaited.emails(status="sent")] == [ANA]
        assert (await awaited.only()).is_sent
        await awaited.clear()
        assert await awaited.emails() == []

    asyncio.run(story())


def test_every_method_of_the_outbox_can_be_awaited() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(AsyncOutbox) == public(Outbox) - {"close"}
