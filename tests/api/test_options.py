"""Every optional argument arrives in its column, one by one and in bulk."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

import mailgres
from mailgres.request import FIELDS
from support.sources import Source

LATER = datetime.now(timezone(timedelta(hours=-3, minutes=-30))) + timedelta(days=2)
EMAIL: dict[str, Any] = {
    "user_id": UUID("6f9619ff-8b86-4d01-b42d-00cf4fc964ff"),
    "template_type": "order_receipt",
    "recipient_email": "ana@example.com",
    "payload": {"name": "Ana \\u0000 'ñ' 日本 😀 %s :name", "items": [1, 2.5, None, True]},
    "tenant_id": "acme",
    "priority": 2,
    "scheduled_for": LATER,
    "expires_at": LATER + timedelta(hours=1),
    "idempotency_key": "order-1",
    "correlation_id": "request-1",
    "route": "default",
    "retry_policy": "patient",
    "max_retries": 7,
    "retry_delay": timedelta(seconds=1, microseconds=5),
    "max_retry_delay": timedelta(days=3),
    "from_email": "Shop <shop@example.com>",
    "reply_to": "help@example.com",
    "subject": "Your order: 100 %",
    "html": "<p>:html %(html)s</p>",
    "text": "Thanks\nagain",
    "headers": {"X-Shop": "one"},
    "tags": {"kind": "receipt"},
    "also_to": ["emil@example.com"],
    "cc": ["bea@example.com", "carl@example.com"],
    "bcc": ("dora@example.com",),
    "attachments": [
        {"filename": "a.bin", "content": bytes(range(256)), "content_type": "image/png"},
        {"filename": "ü.txt", "content": "aGVsbG8=", "content_id": "hello"},
    ],
}
STORED = {
    **{name: value for name, value in EMAIL.items() if name != "attachments"},
    "bcc": ["dora@example.com"],
}
FILES = [
    ("a.bin", "image/png", None, bytes(range(256))),
    ("ü.txt", "application/octet-stream", "hello", b"hello"),
]


def row(conn: psycopg.Connection, email: UUID) -> dict[str, Any]:
    cursor = conn.cursor(row_factory=dict_row)
    found = cursor.execute("SELECT * FROM email_queue WHERE id = %s", [email]).fetchone()
    assert found is not None
    return found


def files(conn: psycopg.Connection, email: UUID) -> list[Any]:
    return conn.execute(
        "SELECT filename, content_type, content_id, content FROM mailgres.attachments"
        " WHERE queue_id = %s ORDER BY position",
        [email],
    ).fetchall()


def enqueue(source: Source, email: dict[str, Any]) -> UUID:
    rest = dict(email)
    first = [rest.pop(name) for name in ("template_type", "recipient_email", "payload")]
    found = source.call(mailgres.enqueue, *first, **rest)
    assert isinstance(found, UUID)
    return found


def test_every_option_of_enqueue_is_stored(source: Source, conn: psycopg.Connection) -> None:
    single = enqueue(source, EMAIL)
    (bulk,) = source.call(mailgres.enqueue_many, [{**EMAIL, "idempotency_key": "order-2"}])
    source.commit()
    for email, key in ((single, "order-1"), (bulk, "order-2")):
        found = row(conn, email)
        assert {name: found[name] for name in STORED} == {**STORED, "idempotency_key": key}
        assert files(conn, email) == FILES


def test_absent_and_none_are_the_databases_defaults(
    source: Source, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', '{}')")
    least = {"template_type": "welcome_user", "recipient_email": "ana@example.com"}
    options = set(FIELDS) - {"template_type", "recipient_email", "payload", "tenant_id"}
    nothing: dict[str, Any] = dict.fromkeys(options)
    source.call(mailgres.enqueue, **least)
    source.call(mailgres.enqueue, **least, **nothing)
    source.call(mailgres.enqueue_many, [least, {**least, **nothing}])
    source.commit()
    columns = [name for name in FIELDS if name != "attachments"] + ["ready", "status"]
    names = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, columns))
    query = psycopg.sql.SQL("SELECT count(*), {} FROM email_queue GROUP BY {}").format(names, names)
    assert [found[0] for found in conn.execute(query)] == [5]


def test_enqueue_takes_subclasses_of_str_and_any_mapping(conn: psycopg.Connection) -> None:
    class Template(str, enum.Enum):  # noqa: UP042 - what older code has
        WELCOME = "welcome_user"

    email = mailgres.enqueue(conn, Template.WELCOME, "ana@example.com", EMAIL["payload"].copy())
    assert row(conn, email)["template_type"] == "welcome_user"


@pytest.mark.parametrize("factory", ["dict rows", "raw cursors"])
def test_the_applications_own_factories_do_not_matter(database_url: str, factory: str) -> None:
    options: Any = (
        {"row_factory": dict_row}
        if factory == "dict rows"
        else {"cursor_factory": psycopg.RawCursor}
    )
    with psycopg.connect(database_url, **options) as connection:
        assert type(mailgres.enqueue(connection, "welcome_user", "ana@example.com")) is UUID


def test_an_unknown_option_is_a_programmers_mistake(conn: psycopg.Connection) -> None:
    options: Any = {"prioritty": 1}
    with pytest.raises(TypeError, match="unexpected keyword argument 'prioritty'"):
        mailgres.enqueue(conn, "welcome_user", "ana@example.com", **options)


@pytest.mark.parametrize("thing", [None, "postgresql://", object(), psycopg, 5])
def test_enqueue_refuses_objects_that_are_not_connections(thing: Any) -> None:
    with pytest.raises(TypeError, match="is not a connection: pass a Connection"):
        mailgres.enqueue(thing, "welcome_user", "ana@example.com")


def test_enqueue_refuses_an_engine_of_sqlalchemy(database_url: str) -> None:
    import sqlalchemy as sa

    engine: Any = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with pytest.raises(TypeError, match="Engine is not a connection"):
        mailgres.enqueue(engine, "welcome_user", "ana@example.com")


def test_a_time_in_another_zone_is_the_same_time(conn: psycopg.Connection) -> None:
    email = mailgres.enqueue(conn, "welcome_user", "ana@example.com", scheduled_for=LATER)
    assert row(conn, email)["scheduled_for"] == LATER.astimezone(UTC)
