"""`mailgres show`, run as a program."""

from __future__ import annotations

import email as stdlib_email
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from support.program import Program
from support.queue import Clock, Queue

FROM = {"MAILGRES_FROM_EMAIL": "Shop <shop@example.com>"}


@pytest.fixture
def clock(queue: Queue) -> Clock:
    return Clock(queue.conn)


@pytest.fixture
def dead(queue: Queue, clock: Clock) -> UUID:
    """One that failed, was tried again and died."""
    found = queue.enqueue(payload={"name": "Ana", "url": "https://example.com/"}, tenant_id="acme")
    queue.attempt("transient", code="http_503", message="away", duration_ms=120)
    clock.forward(timedelta(minutes=2))
    queue.attempt("permanent", code="validation_error", message="no such address")
    return found


def test_show_prints_the_timeline_of_an_email(mailgres: Program, dead: UUID) -> None:
    head, *lines = mailgres("show", str(dead)).splitlines()
    assert head.split() == [str(dead), "failed"]
    assert [line.split() for line in lines[:3]] == [
        ["to", "ana@example.com"],
        ["template", "welcome_user"],
        ["tenant", "acme"],
    ]
    enqueued, first, second = lines[lines.index("") + 1 :]
    assert "UTC  enqueued" in enqueued
    assert enqueued.endswith("at most 4 attempts")
    assert "attempt 1: failed, will be retried" in first
    assert "capture in 120 ms; transient http_503; away; next in 1m; worker worker-1" in first
    assert "attempt 2: dead" in second
    assert "permanent validation_error; no such address; worker worker-1" in second


def test_show_says_what_an_email_waits_for(mailgres: Program, queue: Queue, clock: Clock) -> None:
    waiting = queue.enqueue(scheduled_for=clock.now + timedelta(hours=1))
    last = mailgres("show", str(waiting)).splitlines()[-1]
    assert last.startswith("now ")
    assert last.endswith(", in 1h")
    clock.forward(timedelta(hours=2))
    assert mailgres("show", str(waiting)).endswith("due, waiting for a worker\n")
    queue.claim("worker-7")
    assert " leased by worker-7 until 20" in mailgres("show", str(waiting))


TIMES = ("infinity", "-infinity", "9999-12-31T23:59Z", "290000-01-01T00:00Z", "0044-03-15 BC")


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_show_prints_any_time_that_the_database_can_hold(
    mailgres: Program, queue: Queue, time: str, zone: str
) -> None:
    """A next attempt that was set by hand may be beyond Python's calendar."""
    email = queue.enqueue()
    queue.run(
        "UPDATE email_queue SET next_retry_at = %s, scheduled_for = %s, expires_at = %s",
        *(time, time, time if time.startswith(("i", "9")) else None),
    )
    queue.run("SELECT mailgres.measure_depth()")
    shown = mailgres("show", str(email), TZ=zone, PGTZ=zone)
    listed = mailgres("list", TZ=zone, PGTZ=zone)
    mailgres("status", TZ=zone, PGTZ=zone)
    if time == "infinity":
        assert "expires after ages" in shown
        assert shown.endswith(f"never due; `mailgres reschedule {email} --to now` changes it\n")
        assert listed.endswith("never due\n")
    if time == "-infinity":
        assert shown.endswith("due, waiting for a worker\n")
        assert listed.endswith("next long ago\n")
        assert "1 due now, the oldest for ages" in mailgres("status")


def test_show_prints_an_attempt_that_is_never_due(mailgres: Program, queue: Queue) -> None:
    email = queue.enqueue()
    queue.attempt("transient", code="http_503", message="away")
    queue.run("UPDATE email_queue SET next_retry_at = 'infinity'")
    queue.run(
        "INSERT INTO email_logs (queue_id, event, to_status, tenant_id, template_type,"
        " next_retry_at) VALUES (%s, 'rescheduled', 'pending', 'default', 'welcome_user',"
        " 'infinity')",
        email,
    )
    assert "next never" in mailgres("show", str(email))


def test_show_prints_events_of_the_provider(mailgres: Program, queue: Queue) -> None:
    sent = queue.enqueue()
    queue.attempt("sent", provider_message_id="m-1")
    queue.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", sent)
    lines = mailgres("show", str(sent)).splitlines()
    assert "attempt 1: sent" in lines[-2]
    assert "id m-1" in lines[-2]
    assert "provider: delivered" in lines[-1]


def test_show_as_json_has_row_log_and_rendering(mailgres: Program, dead: UUID) -> None:
    found = mailgres.json("show", str(dead), "--rendered", **FROM)
    assert found["email"]["id"] == str(dead)
    assert [entry["event"] for entry in found["log"]] == ["retry", "dead"]
    assert found["rendered"]["from"] == "Shop <shop@example.com>"
    assert "lease_token" not in found["email"]
    assert mailgres.json("show", str(dead))["rendered"] is None


def test_show_renders_the_pinned_template_version(
    mailgres: Program, queue: Queue, dead: UUID
) -> None:
    before = mailgres("show", str(dead), "--rendered", **FROM)
    assert "\nFrom: Shop <shop@example.com>\nTo: ana@example.com\nSubject: " in before
    assert "\n--- html\n" in before
    changed = {"en": {"subject": "Changed", "text": "changed"}}
    queue.run("SELECT mailgres.push_template('welcome_user', %s)", Jsonb(changed))
    assert mailgres("show", str(dead), "--rendered", **FROM) == before
    fresh = queue.enqueue()
    assert "Subject: Changed" in mailgres("show", str(fresh), "--rendered", **FROM)


def test_show_eml_prints_the_message_as_it_is_sent(mailgres: Program, dead: UUID) -> None:
    message = stdlib_email.message_from_string(mailgres("show", str(dead), "--eml", **FROM))
    assert message["To"] == "ana@example.com"
    assert message["From"] == "Shop <shop@example.com>"
    assert message["Message-ID"] == f"<{dead}.0@example.com>"
    assert message.get_content_type() == "multipart/alternative"


def test_show_finds_emails_in_the_archive(
    mailgres: Program, queue: Queue, clock: Clock, dead: UUID
) -> None:
    clock.forward(timedelta(days=8))
    assert queue.value("SELECT mailgres.archive_dead_letters()") == 1
    shown = mailgres("show", str(dead), "--rendered", **FROM)
    assert "  archived" in shown
    assert "attempt 2: dead" in shown
    assert "Subject: " in shown


def test_show_says_why_an_email_cannot_be_rendered(mailgres: Program, dead: UUID) -> None:
    what, _ = mailgres.fails("show", str(dead), "--eml")
    assert what.startswith("It cannot be rendered: there is no from-address")


def test_show_refuses_unknown_and_malformed_ids(mailgres: Program) -> None:
    unknown = uuid4()
    what, hint = mailgres.fails("show", str(unknown))
    assert what == f"There is no email {unknown}, neither in the queue nor in the archive"
    assert hint.startswith("Check the id")
    assert "'42' is not an id. Give a UUID, or at least its first 4 digits." in mailgres.misused(
        "show", "42"
    )
    assert "--eml" in mailgres.misused("show", str(unknown), "--eml", "--json")
