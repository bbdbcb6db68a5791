"""Bad input, good input, and the ways by which it comes to the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

import mailgres

ANA = "ana.secret@example.com"
SOON = datetime.now(UTC) + timedelta(hours=1)
CONTENT = {"template_type": "receipt", "subject": "Hello", "text": "Hello"}
PDF = {"filename": "a.pdf", "content": "aGVsbG8="}
AS_JSON = ("payload", "headers", "tags", "attachments")


# The ways in


def by_sql(conn: psycopg.Connection, email: dict[str, Any]) -> object:
    """SELECT enqueue_email(p_user_id => …, …)."""
    arguments = {"user_id": None, **email}
    placeholders = [
        sql.SQL("{} => {}").format(sql.Identifier(f"p_{name}"), sql.Placeholder(name))
        for name in arguments
    ]
    call = sql.SQL("SELECT enqueue_email({})").format(sql.SQL(", ").join(placeholders))
    return conn.execute(call, {name: _adapted(name, value) for name, value in arguments.items()})


def _adapted(name: str, value: Any) -> Any:
    return Jsonb(value) if name in AS_JSON and value is not None else value


def by_sql_in_bulk(conn: psycopg.Connection, email: dict[str, Any]) -> object:
    """SELECT enqueue_emails('[a good one, this one]')."""
    good = {"template_type": "welcome_user", "recipient_email": "good@example.com"}
    plain = {name: _plain(value) for name, value in email.items()}
    return conn.execute("SELECT enqueue_emails(%s)", [Jsonb([good, plain])])


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, datetime | timedelta | UUID) else value


def by_python(conn: psycopg.Connection, email: dict[str, Any]) -> object:
    """mailgres.enqueue(conn, …)."""
    return mailgres.enqueue(conn, **email)


def by_python_in_bulk(conn: psycopg.Connection, email: dict[str, Any]) -> object:
    """mailgres.enqueue_many(conn, [a good one, this one])."""
    good: Any = {"template_type": "welcome_user", "recipient_email": "good@example.com"}
    bad: Any = email
    return mailgres.enqueue_many(conn, [good, bad])


Way = Callable[[psycopg.Connection, Any], object]
SQL: tuple[Way, ...] = (by_sql, by_sql_in_bulk)
PYTHON: tuple[Way, ...] = (by_python, by_python_in_bulk)


# The table


@dataclass(frozen=True)
class Bad:
    """An input, and with what it is refused."""

    name: str
    sqlstate: str
    fields: dict[str, Any] = field(default_factory=dict)
    ways: tuple[Way, ...] = SQL + PYTHON


def action(function: str, **arguments: Any) -> tuple[Way, Way]:
    """The two ways to act on an email of the queue."""

    def by_sql_action(conn: psycopg.Connection, email: UUID) -> object:
        names = sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(f"p_{name}"), sql.Placeholder(name))
            for name in ("queue_id", *arguments)
        )
        call = sql.SQL("SELECT {}({})").format(sql.Identifier(f"{function}_email"), names)
        return conn.execute(call, {"queue_id": email, **arguments})

    def by_python_action(conn: psycopg.Connection, email: UUID) -> object:
        return getattr(mailgres, function)(conn, email, **arguments)

    return by_sql_action, by_python_action


BAD_EMAILS = [
    Bad("unknown template", "MG001", {"template_type": "no_such"}),
    Bad("retired template", "MG001", {"template_type": "retired"}),
    Bad("no template and no content", "MG001", {"template_type": None}),
    Bad("address in the template's place", "MG001", {"template_type": ANA}),
    Bad("template with NUL", "MG001", {"template_type": "a\0b"}, PYTHON),
    Bad("no address", "MG002", {"recipient_email": None}),
    Bad("empty address", "MG002", {"recipient_email": ""}),
    Bad("address without @", "MG002", {"recipient_email": "ana.example.com"}),
    Bad("address with two @", "MG002", {"recipient_email": "ana@bea@example.com"}),
    Bad("address without domain", "MG002", {"recipient_email": "zoe@"}),
    Bad("address without local part", "MG002", {"recipient_email": "@zoe.example"}),
    Bad("address in a domain of one label", "MG002", {"recipient_email": "ana@localhost"}),
    Bad("address at an IP number", "MG002", {"recipient_email": "ana@[127.0.0.1]"}),
    Bad("address with a display name", "MG002", {"recipient_email": f"Ana <{ANA}>"}),
    Bad("two addresses", "MG002", {"recipient_email": f"{ANA}, bea@example.com"}),
    Bad("address with a space", "MG002", {"recipient_email": "ana b@example.com"}),
    Bad("address with a space behind", "MG002", {"recipient_email": f"{ANA} "}),
    Bad("address with a quoted local part", "MG002", {"recipient_email": '"ana"@example.com'}),
    Bad("address with two dots", "MG002", {"recipient_email": "ana..b@example.com"}),
    Bad("address with a dot in front", "MG002", {"recipient_email": ".ana@example.com"}),
    Bad("domain with two dots", "MG002", {"recipient_email": "ana@example..com"}),
    Bad("address of 400 characters", "MG002", {"recipient_email": f"{'a' * 388}@example.com"}),
    Bad("local part of 65", "MG002", {"recipient_email": f"{'a' * 65}@example.com"}),
    Bad("address with CR LF", "MG002", {"recipient_email": f"{ANA}\r\nBcc: bea@example.com"}),
    Bad("address with LF behind", "MG002", {"recipient_email": f"{ANA}\n"}),
    Bad("address with CR inside", "MG002", {"recipient_email": "ana\r@example.com"}),
    Bad("address with a line separator", "MG002", {"recipient_email": "ana\u2028@example.com"}),
    Bad("address with NUL", "MG002", {"recipient_email": "ana\0@example.com"}, PYTHON),
    Bad("address with half a surrogate", "MG002", {"recipient_email": "\ud800@a.com"}, PYTHON),
    Bad("address that is no text", "MG002", {"recipient_email": 5}, PYTHON),
    Bad("payload null", "MG003", {"payload": None}),
    Bad("payload array", "MG003", {"payload": [1]}),
    Bad("payload text", "MG003", {"payload": "text"}),
    Bad("payload number", "MG003", {"payload": 5}),
    Bad("payload with NUL", "MG003", {"payload": {"name": "a\0b"}}, PYTHON),
    Bad("payload with a key with NUL", "MG003", {"payload": {"a\0b": 1}}, PYTHON),
    Bad("payload with half a surrogate", "MG003", {"payload": {"name": "\udc00"}}, PYTHON),
    Bad("payload that is no JSON", "MG003", {"payload": {"name": object()}}, PYTHON),
    Bad("payload with NaN", "MG003", {"payload": {"name": float("nan")}}, PYTHON),
    Bad("payload of 2 MB", "MG004", {"payload": {"name": "x" * 2_000_000}}),
    Bad("payload one byte too long", "MG004", {"payload": {"name": "x" * (2**20 - 11)}}),
    Bad("variable missing", "MG005", {"template_type": "demanding", "payload": {"a": 1}}),
    Bad("priority 0", "MG006", {"priority": 0}),
    Bad("priority 10", "MG006", {"priority": 10}),
    Bad("priority negative", "MG006", {"priority": -1}),
    Bad("priority beyond int", "MG006", {"priority": 2**40}, PYTHON),
    Bad("priority that is not a number", "MG006", {"priority": "high"}, PYTHON),
    Bad("priority that is a boolean", "MG006", {"priority": True}, PYTHON),
    Bad("max_retries negative", "MG007", {"max_retries": -1}),
    Bad("max_retries 101", "MG007", {"max_retries": 101}),
    Bad("retry_delay negative", "MG007", {"retry_delay": timedelta(seconds=-1)}),
    Bad("retry_delay 31 days", "MG007", {"retry_delay": timedelta(days=31)}),
    Bad("max_retry_delay negative", "MG007", {"max_retry_delay": timedelta(seconds=-1)}),
    Bad("retry_delay without end", "MG007", {"retry_delay": timedelta.max}, PYTHON),
    Bad("retry_delay that is a number", "MG007", {"retry_delay": 60}, PYTHON),
    Bad("expires in the past", "MG008", {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}),
    Bad(
        "expires before it is sent",
        "MG008",
        {"scheduled_for": SOON, "expires_at": SOON - timedelta(minutes=1)},
    ),
    Bad("expires when it is sent", "MG008", {"scheduled_for": SOON, "expires_at": SOON}),
    Bad("key used for another payload", "MG009", {"idempotency_key": "used", "payload": {"a": 1}}),
    Bad("key used for another person", "MG009", {"idempotency_key": "used"}),
    Bad(
        "key used without attachments",
        "MG009",
        {"idempotency_key": "used", "recipient_email": "first@example.com", "attachments": [PDF]},
    ),
    Bad("unknown policy", "MG010", {"retry_policy": "no_such"}),
    Bad("unknown route", "MG011", {"route": "no_such"}),
    Bad("subject alone", "MG012", {"subject": "Hello"}),
    Bad("html alone", "MG012", {"html": "<p>Hello</p>"}),
    Bad("subject empty", "MG012", {**CONTENT, "subject": ""}),
    Bad("subject with CR LF", "MG012", {**CONTENT, "subject": "Hello\r\nBcc: bea@example.com"}),
    Bad("subject with LF", "MG012", {**CONTENT, "subject": "Hello\n"}),
    Bad("subject with a line separator", "MG012", {**CONTENT, "subject": "a\u2028Bcc: b"}),
    Bad("subject of 999", "MG012", {**CONTENT, "subject": "x" * 999}),
    Bad("subject with NUL", "MG012", {**CONTENT, "subject": "a\0b"}, PYTHON),
    Bad("text of 6 MB", "MG012", {**CONTENT, "text": "x" * 6_000_000}),
    Bad("tenant null", "MG013", {"tenant_id": None}),
    Bad("tenant empty", "MG013", {"tenant_id": ""}),
    Bad("tenant of 201", "MG013", {"tenant_id": "x" * 201}),
    Bad("key empty", "MG013", {"idempotency_key": ""}),
    Bad("key of 257", "MG013", {"idempotency_key": "x" * 257}),
    Bad("correlation id empty", "MG013", {"correlation_id": ""}),
    Bad("attachments that are no array", "MG014", {"attachments": {}}),
    Bad("attachment that is no object", "MG014", {"attachments": ["a.pdf"]}),
    Bad("attachment without name", "MG014", {"attachments": [{"content": ""}]}),
    Bad("attachment with a path", "MG014", {"attachments": [{**PDF, "filename": "../a.pdf"}]}),
    Bad("attachment with LF", "MG014", {"attachments": [{**PDF, "filename": "a\n.pdf"}]}),
    Bad("attachment without content", "MG014", {"attachments": [{"filename": "a.pdf"}]}),
    Bad("attachment not base64", "MG014", {"attachments": [{**PDF, "content": "?"}]}),
    Bad("attachment cut short", "MG014", {"attachments": [{**PDF, "content": "aGVsb"}]}),
    Bad("attachment type", "MG014", {"attachments": [{**PDF, "content_type": "a\r\nb/c"}]}),
    Bad("attachment with NUL", "MG014", {"attachments": [{**PDF, "filename": "\0"}]}, PYTHON),
    Bad("unknown field", "MG015", {"prioritty": 1}, (by_sql_in_bulk, by_python_in_bulk)),
    Bad("user_id that is none", "MG015", {"user_id": ANA}, (by_sql_in_bulk, *PYTHON)),
    Bad("time without zone", "MG015", {"scheduled_for": datetime(2030, 1, 1)}, PYTHON),  # noqa: DTZ001
    Bad("time that is text", "MG015", {"expires_at": "2030-01-01"}, PYTHON),
    Bad("sender with CR LF", "MG016", {"from_email": "a@example.com\r\nBcc: bea@example.com"}),
    Bad("sender's name with LF", "MG016", {"from_email": "A\nB <a@example.com>"}),
    Bad("sender with a next line", "MG016", {"from_email": "A\u0085B <a@example.com>"}),
    Bad("sender without address", "MG016", {"from_email": "Shop"}),
    Bad("sender with NUL", "MG016", {"from_email": "a\0@example.com"}, PYTHON),
    Bad("reply address with LF", "MG016", {"reply_to": "a@example.com\n"}),
    Bad("copy with LF", "MG016", {"cc": ["bea@example.com\nX: y"]}),
    Bad("copy with a null", "MG016", {"cc": ["bea@example.com", None]}),
    Bad("51 copies", "MG016", {"bcc": ["bea@example.com"] * 51}),
    Bad("copies as text", "MG016", {"cc": "bea@example.com"}, PYTHON),
    Bad("header with LF", "MG017", {"headers": {"X-A": "b\nBcc: bea@example.com"}}),
    Bad("header with CR", "MG017", {"headers": {"X-A": "b\rBcc: bea@example.com"}}),
    Bad("header with a line separator", "MG017", {"headers": {"X-A": "b\u2028Bcc: c"}}),
    Bad("header's name with LF", "MG017", {"headers": {"X-A: b\nBcc": "bea@example.com"}}),
    Bad("header Bcc", "MG017", {"headers": {"bCc": "bea@example.com"}}),
    Bad("headers as array", "MG017", {"headers": ["X-A"]}),
    Bad("header that is a number", "MG017", {"headers": {"X-A": 1}}),
    Bad("header with NUL", "MG017", {"headers": {"X-A": "a\0b"}}, PYTHON),
    Bad("tag with a space", "MG017", {"tags": {"kind": "a b"}}),
]
BAD_ACTIONS = [
    Bad("retry of an unknown email", "MG020", {}, action("retry")),
    Bad("retry of a sent email", "MG021", {"is": "sent"}, action("retry")),
    Bad("retry of an email being sent", "MG022", {"is": "sending"}, action("retry")),
    Bad("retry of an uncertain email", "MG024", {"is": "uncertain"}, action("retry")),
    Bad("cancel of an unknown email", "MG020", {}, action("cancel")),
    Bad("cancel of a sent email", "MG021", {"is": "sent"}, action("cancel")),
    Bad("cancel of an email being sent", "MG022", {"is": "started"}, action("cancel")),
    Bad("cancel of an uncertain email", "MG023", {"is": "uncertain"}, action("cancel")),
    Bad("new time, unknown email", "MG020", {}, action("reschedule", scheduled_for=SOON)),
    Bad("new time, sent", "MG021", {"is": "sent"}, action("reschedule", scheduled_for=SOON)),
    Bad("new time, sending", "MG022", {"is": "sending"}, action("reschedule", scheduled_for=SOON)),
    Bad("new time, none", "MG008", {"is": "pending"}, action("reschedule", scheduled_for=None)),
]
ADDRESSES = [
    "ana@example.com",
    "ANA@EXAMPLE.COM",
    "ana+tag@example.com",
    "o'brien@example.com",
    "!#$%&'*+-/=?^_`{|}~@example.com",
    "1@example.com",
    "ana@sub.sub.example.co.uk",
    "ana@ex-ample.museum",
    "ana@xn--bcher-kva.example",
    f"{'a' * 64}@example.com",
    "añá@example.com",
    "用户@example.com",
    "ana@bücher.example",
    "ана@почта.рф",
    "😀@example.com",
]
GOOD: dict[str, dict[str, Any]] = {
    "payload of exactly 1 MiB": {"payload": {"name": "x" * (2**20 - 12)}},
    "all variables": {"template_type": "demanding", "payload": {"a": 1, "b": None, "c": ""}},
    "own content needs no variables": {**CONTENT, "template_type": "demanding"},
    "own content needs no template": {**CONTENT, "template_type": None},
    "priority 1": {"priority": 1},
    "priority 9": {"priority": 9},
    "no retries": {"max_retries": 0},
    "100 retries": {"max_retries": 100},
    "30 days": {"retry_delay": timedelta(days=30), "max_retry_delay": timedelta(days=30)},
    "expires after it is sent": {"scheduled_for": SOON, "expires_at": SOON + timedelta(seconds=1)},
    "key of another tenant": {"idempotency_key": "used", "tenant_id": "other"},
    "key and content again": {"idempotency_key": "used", "recipient_email": "first@example.com"},
    "key of 256": {"idempotency_key": "x" * 256},
    "empty attachment": {"attachments": [{"filename": "a.txt", "content": ""}]},
    "50 copies": {"bcc": ["bea@example.com"] * 50},
    "subject of 998": {**CONTENT, "subject": "x" * 998},
    "a tab in a header": {"headers": {"X-A": "b\tc"}},
}
