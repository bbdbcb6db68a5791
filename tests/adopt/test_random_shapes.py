"""Queues with random names, types and statuses: inspection maps each column right, or asks.

The words here are the tests' own; some of them inspection does not know. What it must never do is
to take one thing for another, or to treat a row as waiting without knowing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from mailgres.adopt import ASK, NO_PLACE, Inspection, inspect
from mailgres.errors import MailgresError
from support.postgres import Server

TEXT = ("text", "varchar(255)", "citext_like")
TIMES = ("timestamptz", "timestamp")
NAMES: dict[str, tuple[str, ...]] = {
    "recipient_email": (
        *("recipient_email", "to_email", "recipientEmail", "ToAddress", "Destinatario", "to"),
        *("empfaenger", "adressat", "correspondent"),
    ),
    "subject": ("subject", "Subject", "emailSubject", "asunto", "betreff", "headline"),
    "html": ("html", "bodyHtml", "html_content", "markup"),
    "status": ("status", "Status", "state", "estado", "queueStatus", "phase", "lifecycle"),
    "retries": ("retries", "retryCount", "attempts", "intentos", "failures_so_far"),
    "max_retries": ("max_retries", "maxAttempts", "retry_limit", "patience"),
    "scheduled_for": ("scheduled_for", "sendAt", "scheduled_at", "release_moment"),
    "next_retry_at": ("next_retry_at", "nextAttemptAt", "retry_at"),
    "sent_at": ("sent_at", "completedAt", "enviado_en", "handed_over"),
    "created_at": ("created_at", "createdAt", "fecha_creacion", "born"),
    "error_message": ("error_message", "lastError", "failure_reason", "complaint"),
    "template_type": ("template_type", "templateName", "email_type", "layout"),
    "payload": ("payload", "templateData", "variables", "ingredients"),
    "cc": ("cc", "CC", "cc_emails"),
    "user_id": ("user_id", "userId"),
    NO_PLACE: (
        *("booking_id", "updated_at", "notes", "recipient_name", "locale", "InvoiceNo", "metadata"),
        *("sender_domain", "attachments_count", "campaign"),
    ),
}
KINDS = {
    **dict.fromkeys(
        ("scheduled_for", "next_retry_at", "sent_at", "created_at", "updated_at"), TIMES
    ),
    **dict.fromkeys(("retries", "max_retries", "attachments_count"), ("int", "smallint", "bigint")),
    **dict.fromkeys(("payload", "metadata"), ("jsonb", "json")),
    **dict.fromkeys(("user_id", "booking_id"), ("uuid",)),
}
STATUSES = {
    "waiting": ("pending", "queued", "PENDING", "Pendiente", "vorgemerkt"),
    "processing": ("processing", "sending", "in_progress", "Procesando", "unterwegs"),
    "sent": ("sent", "SENT", "completed", "delivered", "Enviado", "weg"),
    "failed_final": ("failed", "abandoned", "dead_letter", "Fallido", "kaputt"),
    "cancelled": ("cancelled", "canceled", "skipped"),
}
VALUES: dict[str, Any] = {
    "html": "<p>Hello</p>",
    "recipient_email": "ana@example.com",
    "subject": "Hello",
    "retries": 1,
    "max_retries": 3,
}


class Shape(NamedTuple):
    """A queue: its columns with what each is, its types, and its statuses with what they mean."""

    columns: dict[str, str]
    types: dict[str, str]
    statuses: dict[str, str]
    declared: str
    filled: bool


LATER = Shape(
    {
        "to_email": "recipient_email",
        "status": "status",
        "created_at": "created_at",
        "subject": "subject",
        "html": "html",
        "release_moment": "scheduled_for",
    },
    {
        **dict.fromkeys(("to_email", "status", "subject", "html"), "text"),
        "created_at": "timestamptz",
        "release_moment": "timestamp",
    },
    {"pending": "waiting", "sent": "sent"},
    "check",
    filled=True,
)
"""Emails for later, by a name that nobody knows, and without a time zone: both are asked for."""


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    fields = ["recipient_email", "status", "created_at"]
    fields += draw(st.sampled_from([["subject", "html"], ["template_type", "payload"]]))
    optional = [each for each in NAMES if each not in (*fields, NO_PLACE)]
    fields += draw(st.lists(st.sampled_from(optional), unique=True, max_size=5))
    columns = {draw(st.sampled_from(NAMES[each])): each for each in fields}
    for noise in draw(st.lists(st.sampled_from(NAMES[NO_PLACE]), unique=True, max_size=4)):
        columns.setdefault(noise, NO_PLACE)
    types = {
        name: draw(st.sampled_from(KINDS.get(to or name, TEXT))) for name, to in columns.items()
    }
    meanings = ["waiting", "sent", *draw(st.sets(st.sampled_from(sorted(STATUSES)), max_size=3))]
    statuses = {draw(st.sampled_from(STATUSES[each])): each for each in dict.fromkeys(meanings)}
    declared = draw(st.sampled_from(["check", "enum", "rows"]))
    return Shape(columns, types, statuses, declared, filled=draw(st.booleans()))


@pytest.fixture(scope="module")
def scratch(server: Server) -> Iterator[psycopg.Connection]:
    """One database for all examples; each is a transaction that is rolled back."""
    with server.database() as url, psycopg.connect(url) as connection:
        yield connection


def make(connection: psycopg.Connection, shape: Shape) -> None:
    """Create the table, and a row of each status."""
    connection.execute("CREATE DOMAIN citext_like AS text")
    (status,) = (name for name, to in shape.columns.items() if to == "status")
    types = {name: sql.SQL(kind) for name, kind in shape.types.items()}
    labels = sql.SQL(", ").join(sql.Literal(each) for each in shape.statuses)
    if shape.declared == "enum":
        connection.execute(sql.SQL("CREATE TYPE kind_of AS ENUM ({})").format(labels))
        types[status] = sql.SQL("kind_of")
    parts = [sql.SQL("{} {}").format(sql.Identifier(name), kind) for name, kind in types.items()]
    if shape.declared == "check":
        parts.append(sql.SQL("CHECK ({} IN ({}))").format(sql.Identifier(status), labels))
    connection.execute(
        sql.SQL('CREATE TABLE "Outgoing_email_queue" (id bigserial PRIMARY KEY, {})').format(
            sql.SQL(", ").join(parts)
        )
    )
    if not shape.filled and shape.declared != "rows":
        return
    for each in shape.statuses:
        row = {n: VALUES[to] for n, to in shape.columns.items() if to in VALUES} | {status: each}
        for name, to in shape.columns.items():
            if to == "scheduled_for":
                row[name] = "2999-01-01"
        connection.execute(
            sql.SQL('INSERT INTO "Outgoing_email_queue" ({}) VALUES ({})').format(
                sql.SQL(", ").join(map(sql.Identifier, row)),
                sql.SQL(", ").join(map(sql.Literal, row.values())),
            )
        )


def verify(shape: Shape, found: Inspection) -> None:
    (queue,) = found.mapping.queues
    mapped = {source.column: to for source, to in queue.columns.items()}
    for name, to in shape.columns.items():
        assert mapped[name] in (to, ASK, NO_PLACE), f"{name} is {to or 'nothing of ours'}"
    asked = found.mapping.questions()
    for field in ("recipient_email", "status"):
        assert queue.source(field) is not None or asked, f"{field} is missing and nobody asks"
    if queue.source("status") is not None:
        for status, what in shape.statuses.items():
            assert queue.statuses[status.lower()] in (what, ASK), status
    else:
        assert queue.null_status == ASK
    local = [n for n, kind in shape.types.items() if kind == "timestamp" and mapped[n]]
    assert not local or queue.timezone == ASK
    ahead = [name for name, to in shape.columns.items() if to == "scheduled_for"]
    if ahead and (shape.filled or shape.declared == "rows"):
        assert mapped[ahead[0]] in ("scheduled_for", ASK), "mail for later would be sent now"


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(shape=shapes())
@example(shape=LATER)
def test_inspection_maps_a_random_queue_correctly_or_asks(
    scratch: psycopg.Connection, shape: Shape
) -> None:
    try:
        make(scratch, shape)
        try:
            found = inspect(scratch)
        except MailgresError as error:
            assert "No queue of emails was found" in error.message  # noqa: PT017 - it asks
            return
        verify(shape, found)
    finally:
        scratch.rollback()
