"""The door of the queue: what could stall a worker is refused, by INSERT and UPDATE as well."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from mailgres.providers.header import Unsendable, own_header
from support.bad_input import by_sql, by_sql_in_bulk

GOOD = {
    "cc": "'{}'",
    "bcc": "'{bea@example.com,ана@почта.рф}'",
    "headers": """'{"X-A": "b\\tc", "List-Unsubscribe": "<https://example.com>"}'""",
    "tags": """'{"kind": "receipt"}'""",
    "payload": """'{"name": "Ana"}'""",
    "from_email": "'Shop <mail@example.com>'",
    "reply_to": "'mail@example.com'",
    "subject": "'Hello'",
    "html": "'<p>Hello</p>'",
    "text": "'Hello'",
    "tenant_id": "repeat('x', 200)",
    "correlation_id": "repeat('x', 256)",
    "idempotency_key": "repeat('x', 256)",
    "max_retries": "100",
    "retry_delay": "'30 days'",
    "max_retry_delay": "'30 days'",
    "template_type": "repeat('x', 100)",
    "recipient_email": "'ana@example.com'",
}
BAD = [
    ("cc", "'{NULL}'"),
    ("cc", "'{a@b.cc,NULL}'"),
    ("cc", "'{{a@b.cc}}'"),
    ("cc", "'[2:2]={a@b.cc}'"),
    ("cc", "ARRAY[E'a@b.cc\\nc@d.ee']"),
    ("cc", "'{Ana}'"),
    ("cc", "'{\"\"}'"),
    ("cc", "array_fill('a@b.cc'::text, '{51}')"),
    ("cc", "ARRAY[repeat('a', 65) || '@b.cc']"),
    ("cc", "ARRAY['a@' || repeat('ж.', 120) || 'рф']"),
    ("bcc", "'{NULL}'"),
    ("bcc", "'{{a@b.cc}}'"),
    ("headers", "'[1]'"),
    ("headers", "'[]'"),
    ("headers", "'5'"),
    ("headers", "'null'"),
    ("headers", """'"text"'"""),
    ("headers", """'{"X-A": 5}'"""),
    ("headers", """'{"X-A": null}'"""),
    ("headers", """'{"X-A": ["b"]}'"""),
    ("headers", """'{"X-A": {"b": "c"}}'"""),
    ("headers", """'{"": "b"}'"""),
    ("headers", """'{"X A": "b"}'"""),
    ("headers", """'{"X-A\\n": "b"}'"""),
    ("headers", """'{"X-A": "b\\nBcc: c@d.ee"}'"""),
    ("headers", """'{"X-A": "b\\u2028c"}'"""),
    ("headers", """('{"X-A": 1' || repeat('0', 5000) || '}')::jsonb"""),
    ("headers", "jsonb_build_object('X-A', repeat('x', 20000))"),
    ("headers", "(SELECT jsonb_object_agg('X-' || n, 'b') FROM generate_series(1, 51) n)"),
    ("tags", """'["a"]'"""),
    ("tags", "'null'"),
    ("tags", """'{"a": 5}'"""),
    ("tags", """'{"a": null}'"""),
    ("tags", """'{"a": "b c"}'"""),
    ("tags", """'{"a": "b\\n"}'"""),
    ("tags", """'{"": "b"}'"""),
    ("tags", "(SELECT jsonb_object_agg('t' || n, 'b') FROM generate_series(1, 41) n)"),
    ("payload", "'[1]'"),
    ("payload", "'null'"),
    ("payload", "'5'"),
    ("payload", "jsonb_build_object('a', repeat('x', 9000000))"),
    ("from_email", "'Shop'"),
    ("from_email", "''"),
    ("from_email", "E'Shop\\n<a@b.cc>'"),
    ("reply_to", "E'a@b.cc\\nBcc: c@d.ee'"),
    ("subject", "E'Hello\\nBcc: c@d.ee'"),
    ("subject", "repeat('x', 999)"),
    ("html", "repeat('x', 5242881)"),
    ("text", "repeat('x', 5242881)"),
    ("recipient_email", "''"),
    ("recipient_email", "'Ana'"),
    ("recipient_email", "E'a@b.cc\\nBcc: c@d.ee'"),
    ("recipient_email", "repeat('a', 1000000) || '@b.cc'"),
    ("template_type", "''"),
    ("template_type", "repeat('x', 101)"),
    ("tenant_id", "repeat('x', 201)"),
    ("correlation_id", "repeat('x', 257)"),
    ("idempotency_key", "repeat('x', 257)"),
    ("max_retries", "101"),
    ("retries", "2147483647"),
    ("retry_delay", "'178000 years'"),
    ("retry_delay", "'-1 second'"),
    ("max_retry_delay", "'178000 years'"),
]
_RESERVED = """
    From To Cc Bcc Subject Date Message-ID Reply-To Sender Return-Path MIME-Version
    Received Received-SPF Delivered-To Resent-To Resent-From Resent-Bcc Resent-Message-ID
    Content-Type Content-Transfer-Encoding Content-Disposition Content-ID Content-Foo
    DKIM-Signature DomainKey-Signature Authentication-Results ARC-Seal ARC-Message-Signature
    ARC-Authentication-Results X-SMTPAPI X-SES-Configuration-Set X-SES-Source-ARN X-SES-Message-Tags
    X-MC-Tags X-MC-BccAddress X-PM-Bounce-Type X-PM-Message-Stream X-Mailgun-Tag
    X-Mailgun-Drop-Message X-MJ-CustomID X-MSYS-API X-Mailin-Custom X-Mailin-Tag X-SG-EID
"""
RESERVED = _RESERVED.split()
"""Headers that mailgres, a server or a provider writes or acts on."""
_FREE = """
    X-A X-Entity-Ref-ID List-Unsubscribe List-Unsubscribe-Post List-ID Auto-Submitted Precedence
    In-Reply-To References Importance X-Priority Feedback-ID Contents X-Content-Type Disposition
    Tor Resent X-SESS
"""
FREE = _FREE.split()
"""Headers that an email may bring, some of which look like others."""


def inserted(conn: psycopg.Connection, column: str, value: str) -> None:
    """Insert an email by hand, one column of which is special."""
    given = {"template_type": "'letter'", "recipient_email": "'a@b.cc'", column: value}
    columns, values = ", ".join(given), ", ".join(given.values())
    conn.execute(f"INSERT INTO email_queue ({columns}) VALUES ({values})".encode())


@pytest.mark.parametrize("column", GOOD)
def test_a_plain_insert_of_a_good_value_is_accepted(conn: psycopg.Connection, column: str) -> None:
    inserted(conn, column, GOOD[column])


@pytest.mark.parametrize(("column", "value"), BAD, ids=[f"{c} {v[:40]}" for c, v in BAD])
def test_a_plain_insert_or_update_of_a_bad_value_is_refused(
    conn: psycopg.Connection, column: str, value: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        inserted(conn, column, value)
    # A failing row would be quoted with the recipient in it.
    assert not caught.value.diag.message_detail
    inserted(conn, "priority", "5")
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute(f"UPDATE email_queue SET {column} = {value}".encode())


def test_an_array_of_arrays_of_copies_is_refused(conn: psycopg.Connection) -> None:
    for way in (by_sql, by_sql_in_bulk):
        with pytest.raises(psycopg.Error) as caught:
            way(conn, {"template_type": "welcome_user", "recipient_email": "a@b.cc", **NESTED})
        assert caught.value.sqlstate == "MG016"


NESTED: dict[str, Any] = {"cc": [["a@b.cc"]]}


def is_accepted(conn: psycopg.Connection, name: str) -> bool:
    row = conn.execute(
        "SELECT mailgres.are_headers(%s::jsonb)", [json.dumps({name: "x"})]
    ).fetchone()
    assert row is not None
    return bool(row[0])


def is_writable(name: str) -> bool:
    try:
        own_header(name, "x")
    except Unsendable:
        return False
    return True


def test_nobody_sets_a_header_that_servers_or_providers_act_on(conn: psycopg.Connection) -> None:
    """Neither enqueue nor, for a row that was inserted by hand, the worker accepts it."""
    for name in RESERVED:
        for spelt in (name, name.lower(), name.upper()):
            assert not is_accepted(conn, spelt), spelt
            assert not is_writable(spelt), spelt


def test_headers_that_providers_do_not_reserve_are_accepted(conn: psycopg.Connection) -> None:
    for name in FREE:
        assert is_accepted(conn, name), name
        assert is_writable(name), name


def test_headers_of_18_megabytes_are_refused(conn: psycopg.Connection) -> None:
    email = {"template_type": "welcome_user", "recipient_email": "a@b.cc"}
    for headers in (
        {f"X-{n}": "x" * 900 for n in range(20_000)},
        {f"X-{n}": "x" for n in range(51)},
        {f"X-{n}": "x" * 900 for n in range(20)},
    ):
        with pytest.raises(psycopg.Error) as caught:
            by_sql(conn, {**email, "headers": headers})
        assert caught.value.sqlstate == "MG017"
