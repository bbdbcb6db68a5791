"""One message with several To addresses is one email: one row, one id, one call."""

from __future__ import annotations

import json
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import mailgres
from doubles.resend import ResendDouble
from doubles.ses import SesDouble
from doubles.smtp import SmtpDouble
from e2e.harness import E2eHarness, accepted, once_each

OTHERS = ["bea@example.org", "cid@example.org"]
ALL = ["ana@example.com", *OTHERS]


def test_resend_sends_to_several_to_addresses(harness: E2eHarness, resend: ResendDouble) -> None:
    sent = harness.enqueue(also_to=OTHERS, cc=["cc@example.org"])
    alone = harness.enqueue(also_to=OTHERS, priority=1)
    harness.work()
    assert accepted(resend) == once_each([sent, alone])
    bodies = [json.loads(body) for body in resend.bodies("/emails")]
    bodies += (
        json.loads(resend.bodies("/emails/batch")[0]) if resend.bodies("/emails/batch") else []
    )
    assert [body["to"] for body in bodies] == [ALL, ALL]


def test_ses_sends_to_several_to_addresses(harness: E2eHarness, ses: SesDouble) -> None:
    plain = harness.enqueue(also_to=OTHERS)
    raw = harness.enqueue(also_to=OTHERS, headers={"X-A": "b"})
    harness.work()
    assert accepted(ses) == once_each([plain, raw])
    for each in ses.accepted():
        assert each["request"]["Destination"] == {"ToAddresses": ALL}


def test_smtp_sends_to_several_to_addresses(harness: E2eHarness, smtp: SmtpDouble) -> None:
    """Every recipient gets it once, also one that is in To and in Cc."""
    sent = harness.enqueue(also_to=OTHERS, cc=["cid@example.org"])
    harness.work()
    assert accepted(smtp) == once_each([sent])
    (letter,) = smtp.accepted()
    assert letter.recipients == tuple(ALL)
    assert letter.parsed["to"] == ", ".join(ALL)


def test_several_to_addresses_are_captured(harness: E2eHarness) -> None:
    harness.use("capture")
    harness.enqueue(also_to=OTHERS)
    harness.work()
    message = harness.value("SELECT message FROM mailgres.captured")
    assert (message["to"], message["also_to"]) == (ALL[0], OTHERS)


def also_to(conn: psycopg.Connection, email: UUID) -> list[str]:
    row = conn.execute("SELECT also_to FROM email_queue WHERE id = %s", [email]).fetchone()
    assert row is not None
    found: list[str] = row[0]
    return found


def test_every_way_in_takes_several_to_addresses(conn: psycopg.Connection) -> None:
    email = {"template_type": "welcome_user", "recipient_email": ALL[0], "also_to": OTHERS}
    (by_sql,) = conn.execute("SELECT enqueue_emails(%s)", [Jsonb([email])]).fetchone() or ()
    by_python = mailgres.enqueue(conn, "welcome_user", ALL[0], also_to=tuple(OTHERS))
    (in_bulk,) = mailgres.enqueue_many(
        conn, [{"template_type": "welcome_user", "recipient_email": ALL[0], "also_to": OTHERS}]
    )
    for each in (by_sql, by_python, in_bulk):
        assert also_to(conn, each) == OTHERS


def test_to_addresses_belong_to_the_content_of_a_key(conn: psycopg.Connection) -> None:
    first = mailgres.enqueue(conn, "welcome_user", ALL[0], also_to=OTHERS, idempotency_key="1")
    again = mailgres.enqueue(conn, "welcome_user", ALL[0], also_to=OTHERS, idempotency_key="1")
    assert first == again
    with pytest.raises(mailgres.errors.MailgresError) as refused:
        mailgres.enqueue(conn, "welcome_user", ALL[0], also_to=OTHERS[:1], idempotency_key="1")
    assert refused.value.sqlstate == "MG009"


def test_a_processor_that_knows_one_address_is_not_given_several(harness: E2eHarness) -> None:
    harness.enqueue(also_to=OTHERS)
    alone = harness.enqueue()
    assert [row.queue_id for row in harness.claim_rpc()] == [alone]


@pytest.mark.parametrize(
    "given", [["no address"], [None], [["bea@example.org"]], ["bea@example.org"] * 50]
)
def test_to_addresses_that_are_none_are_refused(conn: psycopg.Connection, given: object) -> None:
    email = {"template_type": "welcome_user", "recipient_email": ALL[0], "also_to": given}
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT enqueue_emails(%s)", [Jsonb([email])])
    assert refused.value.sqlstate == "MG016"
