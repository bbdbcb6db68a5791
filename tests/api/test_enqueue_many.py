"""Thousands of emails: one call for each thousand, read from any iterable, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import mailgres
from mailgres import Email, api, errors
from support.postgres import Connect
from support.sources import Source


def emails(count: int, **changes: Email) -> Iterator[Email]:
    """Make emails; `at_7={…}` changes the one at place 7."""
    for number in range(count):
        email: Email = {
            "template_type": "welcome_user",
            "recipient_email": f"person{number}@example.com",
            "payload": {"number": number},
        }
        yield {**email, **changes.get(f"at_{number}", {})}  # type: ignore[typeddict-item]


def bad(**fields: Any) -> Email:
    return fields  # type: ignore[return-value]


def count(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT count(*) FROM email_queue").fetchone()
    assert row is not None
    return int(row[0])


def calls(conn: psycopg.Connection) -> int:
    """Return how often this session called enqueue_emails, as the server counted it."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions"
        " WHERE funcname = 'enqueue_emails'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_2500_are_three_calls_in_order(conn: psycopg.Connection) -> None:
    conn.execute("SET track_functions = 'all'")
    ids = mailgres.enqueue_many(conn, emails(2500))
    assert calls(conn) == 3
    rows = conn.execute("SELECT id, (payload ->> 'number')::int FROM email_queue")
    found = {row[0]: row[1] for row in rows}
    assert [found[email] for email in ids] == list(range(2500))


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (1, 1), (1000, 1), (1001, 2)])
def test_enqueue_many_makes_one_call_per_thousand_emails(
    conn: psycopg.Connection, number: int, expected: int
) -> None:
    conn.execute("SET track_functions = 'all'")
    assert len(mailgres.enqueue_many(conn, emails(number))) == number
    assert calls(conn) == expected


def test_enqueue_many_consumes_its_iterable_as_needed(connect: Connect) -> None:
    conn = connect(autocommit=False)
    enqueued_before: list[int] = []

    def watched() -> Iterator[Email]:
        for email in emails(2001):
            enqueued_before.append(count(conn))
            yield email

    mailgres.enqueue_many(conn, watched())
    assert enqueued_before == [0] * 1000 + [1000] * 1000 + [2000]


def test_large_emails_are_fewer_in_a_call(
    conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "BYTES_PER_CALL", 2500)
    conn.execute("SET track_functions = 'all'")
    large = ({**email, "payload": {"text": "x" * 1000}} for email in emails(7))
    assert len(mailgres.enqueue_many(conn, large)) == 7  # type: ignore[arg-type]
    assert calls(conn) == 3


REFUSALS = {
    "by the database": (bad(priority=10), errors.InvalidPriority),
    "by its shape": (bad(payload=None), errors.InvalidPayload),
    "before it is sent": (bad(recipient_email="a\0@example.com"), errors.InvalidAddress),
    "unknown field": (bad(prioritty=1), errors.MalformedRequest),
    "a name that looks like a place": (
        bad(template_type="x (element 5 of the array, counting from 0)"),
        errors.UnknownTemplate,
    ),
}


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("place", [0, 999, 1000, 2300])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_place_among_all_and_leaves_nothing(
    connect: Connect,
    conn: psycopg.Connection,
    name: str,
    place: int,
    autocommit: bool,  # noqa: FBT001
) -> None:
    change, expected = REFUSALS[name]
    other = connect(autocommit=autocommit)
    with pytest.raises(expected) as caught:
        mailgres.enqueue_many(other, emails(2500, **{f"at_{place}": change}))
    assert caught.value.index == place
    assert f"element {place} of the array" in caught.value.message
    other.commit()
    assert count(conn) == 0


@pytest.mark.parametrize("name", ["by the database", "before it is sent"])
def test_several_calls_leave_the_transaction_as_it_was(
    source: Source, conn: psycopg.Connection, name: str
) -> None:
    change, expected = REFUSALS[name]
    source.call(mailgres.enqueue, "welcome_user", "first@example.com")
    with pytest.raises(expected):
        source.call(mailgres.enqueue_many, emails(1500, at_1400=change))
    source.call(mailgres.enqueue, "welcome_user", "last@example.com")
    source.commit()
    found = conn.execute("SELECT recipient_email FROM email_queue ORDER BY id").fetchall()
    assert found == [("first@example.com",), ("last@example.com",)]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_without_any_transaction_only_one_call_is_made(
    database_url: str, conn: psycopg.Connection, driver: str
) -> None:
    url = database_url.replace("postgresql://", f"postgresql+{driver}://")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        with pytest.raises(errors.NoTransaction):
            mailgres.enqueue_many(connection, emails(1500))
        assert count(conn) == 0
        mailgres.enqueue_many(connection, emails(999))
    engine.dispose()
    assert count(conn) == 999


@pytest.mark.parametrize("thing", [None, 5, "text", ["a", "list"]])
def test_enqueue_many_refuses_elements_that_are_not_mappings(
    conn: psycopg.Connection, thing: Any
) -> None:
    with pytest.raises(errors.MalformedRequest, match="element 1 of the array") as caught:
        mailgres.enqueue_many(conn, [*emails(1), thing])
    assert caught.value.index == 1


def test_enqueue_many_leaves_nothing_when_its_iterable_raises(conn: psycopg.Connection) -> None:
    def broken() -> Iterator[Email]:
        yield from emails(1500)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        mailgres.enqueue_many(conn, broken())
    assert count(conn) == 0


def test_an_awaited_enqueue_many_in_autocommit_enqueues_all_or_none(
    database_url: str, conn: psycopg.Connection
) -> None:
    async def enqueue() -> None:
        connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
        async with connection:
            with pytest.raises(errors.InvalidPriority):
                await mailgres.enqueue_many(connection, emails(1500, at_1400=bad(priority=0)))
            assert len(await mailgres.enqueue_many(connection, emails(1500))) == 1500

    asyncio.run(enqueue())
    assert count(conn) == 1500


def test_inside_a_transaction_block_the_block_decides(conn: psycopg.Connection) -> None:
    with conn.transaction(force_rollback=True):
        mailgres.enqueue_many(conn, emails(1500))
    assert count(conn) == 0


def test_keys_repeated_in_one_call_and_later_enqueue_once(conn: psycopg.Connection) -> None:
    def keyed() -> Iterator[Email]:
        for email in emails(1500):
            assert "payload" in email
            number = email["payload"]["number"] % 10
            person = f"person{number}@example.com"
            yield {
                "template_type": "welcome_user",
                "recipient_email": person,
                "idempotency_key": f"key-{number}",
            }

    ids = mailgres.enqueue_many(conn, keyed())
    assert ids == ids[:10] * 150
    assert mailgres.enqueue_many(conn, keyed()) == ids
    assert count(conn) == 10


def test_the_savepoint_is_gone_afterwards(connect: Connect) -> None:
    conn = connect(autocommit=False)
    mailgres.enqueue_many(conn, emails(1500))
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
        conn.execute("RELEASE SAVEPOINT mailgres_enqueue_many")


def test_a_savepoint_of_the_same_name_is_left_alone(connect: Connect) -> None:
    conn = connect(autocommit=False)
    conn.execute("SAVEPOINT mailgres_enqueue_many")
    mailgres.enqueue_many(conn, emails(1500))
    with pytest.raises(errors.InvalidPriority):
        mailgres.enqueue_many(conn, emails(1500, at_1400=bad(priority=0)))
    assert count(conn) == 1500
    conn.execute("ROLLBACK TO SAVEPOINT mailgres_enqueue_many")
    assert count(conn) == 0
