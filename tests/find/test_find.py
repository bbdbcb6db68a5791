"""mailgres.find_emails and count_emails: what a filter leaves, in pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.queue import Clock, Queue

FIND = "SELECT f AS id FROM mailgres.find_emails(%s, %s, %s, %s) f"
DEAD = """
    UPDATE email_queue SET status = 'failed', ready = false, dead_at = mailgres.now(),
        dead_reason = %s, error_code = %s, error_message = 'why' WHERE id = %s
"""


def find(queue: Queue, sort: str = "newest", limit: int = 100, **given: Any) -> list[UUID]:
    return [row.id for row in queue.rows(FIND, Jsonb(given), None, limit, sort)]


def pages(queue: Queue, sort: str, size: int, **given: Any) -> list[list[UUID]]:
    found: list[list[UUID]] = []
    last: UUID | None = None
    while page := [row.id for row in queue.rows(FIND, Jsonb(given), last, size, sort)]:
        found.append(page)
        last = page[-1]
    return found


def die(queue: Queue, email: UUID, reason: str = "exhausted", code: str | None = None) -> UUID:
    queue.run(DEAD, reason, code, email)
    return email


def cancel(queue: Queue, email: UUID) -> UUID:
    queue.run("SELECT cancel_email(%s)", email)
    return email


def test_find_emails_filters_by_each_status(queue: Queue) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    sending = queue.enqueue()
    assert [email.id for email in queue.claim()] == [sending]
    found = {
        "pending": {queue.enqueue(), queue.enqueue(scheduled_for=later)},
        "sending": {sending},
        "failed": {die(queue, queue.enqueue())},
        "cancelled": {cancel(queue, queue.enqueue())},
        "sent": set(),
    }
    since = datetime.now(UTC) - timedelta(hours=1)
    for status, expected in found.items():
        assert set(find(queue, status=[status])) == expected
        assert set(find(queue, status=[status], since=since.isoformat())) == expected
    live = ["pending", "sending", "failed"]
    assert set(find(queue, status=live)) == set().union(*(found[status] for status in live))
    assert set(find(queue, status=["cancelled", "failed"])) == found["cancelled"] | found["failed"]
    assert len(find(queue)) == queue.value("SELECT mailgres.count_emails()") == 5


def test_find_emails_filters_by_each_key(queue: Queue) -> None:
    ana = queue.enqueue("welcome_user", "Ana@Example.com", tenant_id="acme")
    bo = queue.enqueue("signup_confirmation", "bo@mail.example.com", tenant_id="globex",
                       payload={"name": "Bo", "url": "https://example.com"})  # fmt: skip
    die(queue, ana, "permanent", "E1")
    queue.run("UPDATE email_queue SET provider = 'ses' WHERE id = %s", ana)
    filters: tuple[dict[str, Any], ...] = (
        {"template": ["welcome_user", "nope"]},
        {"tenant": ["acme"]},
        {"recipient": ["ana@EXAMPLE.com"]},
        {"recipient": ["@example.com"]},
        {"error_code": ["E1"]},
        {"provider": ["ses"]},
        {"dead_reason": ["permanent"]},
        {"status": ["failed"], "tenant": ["acme"], "error_code": ["E0", "E1"]},
    )
    for given in filters:
        assert find(queue, **given) == [ana], given
        assert queue.value("SELECT mailgres.count_emails(%s)", Jsonb(given)) == 1
    assert find(queue, recipient=["@mail.example.com", "ana@example.com"]) == [bo, ana]
    assert find(queue, recipient=["@ample.com"]) == find(queue, tenant=[]) == []


def test_find_emails_respects_windows_and_orders(queue: Queue) -> None:
    clock = Clock(queue.conn)
    start = clock.now
    emails = []
    for _ in range(4):
        emails.append(queue.enqueue())
        clock.forward(timedelta(hours=1))

    def at(hours: int) -> str:
        return (start + timedelta(hours=hours)).isoformat()

    assert find(queue, since=at(1)) == emails[:0:-1]
    assert find(queue, since=at(1), until=at(3)) == [emails[2], emails[1]]
    assert find(queue, "oldest", until=at(2)) == emails[:2]
    assert find(queue, since=at(9)) == []
    queue.run("UPDATE email_queue SET retries = 2, priority = 1 WHERE id = %s", emails[1])
    assert find(queue, "retries") == [emails[1], emails[3], emails[2], emails[0]]
    assert find(queue, "priority", 1) == [emails[1]]
    assert find(queue, "due") == emails


@pytest.mark.parametrize("sort", ["newest", "oldest"])
def test_find_emails_returns_pages_in_order(queue: Queue, sort: str) -> None:
    emails = [die(queue, queue.enqueue()) for _ in range(5)]
    expected = emails if sort == "oldest" else emails[::-1]
    found = pages(queue, sort, 2, status=["failed"])
    assert found == [expected[:2], expected[2:4], expected[4:]]


def test_a_page_goes_on_where_the_last_ended_though_rows_left(queue: Queue) -> None:
    emails = [die(queue, queue.enqueue()) for _ in range(4)]
    given = Jsonb({"status": ["failed"]})
    first = [row.id for row in queue.rows(FIND, given, None, 2, "oldest")]
    queue.run("SELECT retry_email(f) FROM unnest(%s) f", first)
    assert [row.id for row in queue.rows(FIND, given, first[-1], 2, "oldest")] == emails[2:]


def test_count_emails_stops_at_its_limit(queue: Queue) -> None:
    for _ in range(3):
        queue.enqueue()
    assert queue.value("SELECT mailgres.count_emails('{}', 2)") == 2


IMPORT = """
    INSERT INTO email_queue (id, template_type, recipient_email, status, created_at, sent_at)
    VALUES (%s, 'welcome_user', 'ana@example.com', 'sent', %s, %s)
"""


@pytest.mark.parametrize("low", [False, True], ids=["random ids", "ids before mailgres"])
def test_imported_emails_with_foreign_ids_are_found_by_time(queue: Queue, *, low: bool) -> None:
    """Random ids say nothing about time: they are found by created_at alone."""
    then = datetime.now(UTC) - timedelta(days=3)
    foreign = UUID(int=7 if low else uuid4().int | 1 << 127)
    queue.run(IMPORT, foreign, then, then)
    own = queue.enqueue()
    days = [(then + timedelta(days=n)).isoformat() for n in (-1, 1)]
    assert find(queue, since=days[0], until=days[1]) == [foreign]
    assert find(queue, since=days[1]) == [own]
    assert set(find(queue, since=days[0])) == {own, foreign}


def test_imported_emails_with_old_times_are_found_by_time(queue: Queue) -> None:
    then = datetime.now(UTC) - timedelta(days=3)
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, status, created_at, sent_at)"
        " VALUES ('welcome_user', 'ana@example.com', 'sent', %s, %s)",
        *(then, then),
    )
    assert len(find(queue, since=(then - timedelta(days=1)).isoformat())) == 1
    assert find(queue, since=(then + timedelta(days=1)).isoformat()) == []


@pytest.mark.parametrize(
    ("given", "sort", "why"),
    [
        ({"colour": ["red"]}, "newest", "the filter has no key colour"),
        ({"status": ["fialed"]}, "newest", "there is no such status"),
        ({"status": "failed"}, "newest", "a value of the filter has the wrong type"),
        ({"since": "soon"}, "newest", "a value of the filter has the wrong type"),
        ([1], "newest", "a value of the filter has the wrong type"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "newest", "ends before it begins"),
        ({}, "colour", "emails cannot be sorted like this"),
    ],
)
def test_find_emails_refuses_bad_filters(queue: Queue, given: object, sort: str, why: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match=why) as refused:
        queue.rows(FIND, Jsonb(given), None, 1, sort)
    assert refused.value.sqlstate == "MG080"
    assert refused.value.diag.message_hint


def test_find_emails_refuses_pages_in_another_order(queue: Queue) -> None:
    with pytest.raises(psycopg.DatabaseError, match="cannot be sorted"):
        queue.rows(FIND, Jsonb({}), uuid4(), 1, "retries")
