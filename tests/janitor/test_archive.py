"""Dead emails go to the archive with all that is known about them, and leave it in time."""

from __future__ import annotations

import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from janitor.harness import DAY, SECOND, archived, ids, put
from support.postgres import Connect
from support.queue import Clock, Queue

ARCHIVE = "SELECT mailgres.archive_dead_letters(%s)"
PURGE = "SELECT mailgres.purge_archive(%s)"
FILES = [
    {"filename": "a.txt", "content": "YWJj"},
    {"filename": "b.pdf", "content": "YQ==", "content_type": "application/pdf"},
]


def die(queue: Queue) -> None:
    queue.attempt("transient", message="busy")
    queue.run("UPDATE email_queue SET next_retry_at = mailgres.now()")
    queue.attempt("permanent", code="550", message="no such mailbox", detail="ana@example.com?")


def test_the_archive_has_the_whole_row_and_log(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(
        payload={"name": "Ana"}, tenant_id="shop", headers={"X-A": "1"}, attachments=Jsonb(FILES)
    )
    die(queue)
    queue.run(
        "SELECT mailgres.capture(%s)",
        Jsonb([{"key": "k", "queue_id": str(queue_id), "message": {}}]),
    )
    email = queue.value("SELECT to_jsonb(q) FROM email_queue q")
    log = [row[0] for row in queue.rows("SELECT to_jsonb(l) FROM email_logs l ORDER BY l.id")]
    assert len(log) == 3
    dead_at = clock.now

    clock.forward(7 * DAY - SECOND)
    assert queue.value(ARCHIVE, 10) == 0
    clock.forward(SECOND)
    assert queue.value(ARCHIVE, 10) == 1

    entry = queue.row("SELECT * FROM mailgres.dead_letters")
    assert entry.queue_id == queue_id
    assert (entry.tenant_id, entry.template_type) == ("shop", "welcome_user")
    assert (entry.dead_reason, entry.dead_at) == ("permanent", dead_at)
    assert (entry.archived_at, entry.expires_at) == (clock.now, clock.now + 90 * DAY)
    assert entry.log == log
    assert entry.email.pop("attachments") == [
        {"filename": "a.txt", "content_type": "application/octet-stream", "bytes": 3},
        {"filename": "b.pdf", "content_type": "application/pdf", "bytes": 1},
    ]
    assert entry.email == email
    for table in ("email_queue", "email_logs", "mailgres.attachments", "mailgres.captured"):
        assert queue.value(f"SELECT count(*) FROM {table}") == 0


def test_an_archived_row_can_be_restored(queue: Queue, clock: Clock) -> None:
    queue.enqueue(
        payload={"n": [1, 2.5, None, "é"]}, retry_delay="90 seconds", cc=["b@example.com"]
    )
    die(queue)
    with queue.conn.cursor(row_factory=dict_row) as cursor:
        before = cursor.execute("SELECT * FROM email_queue").fetchone()
    clock.forward(8 * DAY)
    queue.run(ARCHIVE, 10)
    with queue.conn.cursor(row_factory=dict_row) as cursor:
        after = cursor.execute(
            "SELECT e.* FROM mailgres.dead_letters d,"
            " jsonb_populate_record(NULL::email_queue, d.email) e"
        ).fetchone()
    assert after == before


def test_an_email_without_a_log_can_be_archived(queue: Queue, clock: Clock) -> None:
    put(queue, "failed")
    queue.run("DELETE FROM email_logs")
    clock.forward(8 * DAY)
    assert queue.value(ARCHIVE, 10) == 1
    assert queue.value("SELECT log FROM mailgres.dead_letters") == []


def test_only_old_dead_letters_are_archived(queue: Queue, clock: Clock) -> None:
    old = put(queue, "failed", 2)
    others = [*put(queue, "sent"), *put(queue, "cancelled"), *put(queue, "pending")]
    clock.forward(6 * DAY)
    young = put(queue, "failed", 2)
    clock.forward(DAY)
    assert queue.value(ARCHIVE, 10) == 2
    assert archived(queue) == set(old)
    assert ids(queue) == {*others, *young}
    assert queue.value("SELECT count(DISTINCT queue_id) FROM email_logs") == 5


def test_dead_letters_are_archived_in_bounded_steps_oldest_first(
    queue: Queue, clock: Clock
) -> None:
    young = put(queue, "failed", 20)
    queue.run("UPDATE email_queue SET dead_at = dead_at + interval '1 hour'")
    old = put(queue, "failed", 15)
    clock.forward(8 * DAY)
    assert queue.value(ARCHIVE, 15) == 15
    assert (archived(queue), ids(queue)) == (set(old), set(young))
    assert [queue.value(ARCHIVE, 10) for _ in range(3)] == [10, 10, 0]
    assert archived(queue) == {*old, *young}


def test_the_times_of_the_archive_are_settings(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE mailgres.settings SET dead_letter_ttl = '1 day', archive_ttl = '2 days'")
    put(queue, "failed")
    clock.forward(DAY)
    assert queue.value(ARCHIVE, 10) == 1
    clock.forward(2 * DAY - SECOND)
    assert queue.value(PURGE, 10) == 0
    clock.forward(SECOND)
    assert queue.value(PURGE, 10) == 1


def test_an_archived_email_that_dies_again_keeps_both_logs(queue: Queue, clock: Clock) -> None:
    """The new entry has both parts of its log."""
    put(queue, "failed")
    clock.forward(8 * DAY)
    queue.run(ARCHIVE, 10)
    queue.run(
        "INSERT INTO email_queue (id, template_type, recipient_email, status, dead_at, dead_reason,"
        " error_message) SELECT queue_id, template_type, 'ana@example.com', 'failed',"
        " mailgres.now(), 'expired', 'again' FROM mailgres.dead_letters"
    )
    queue.run(
        "INSERT INTO email_logs (queue_id, event, tenant_id, template_type)"
        " SELECT id, 'dead', 'default', 'x' FROM email_queue"
    )
    clock.forward(8 * DAY)
    assert queue.value(ARCHIVE, 10) == 1
    entry = queue.row("SELECT * FROM mailgres.dead_letters")
    assert [one["event"] for one in entry.log] == ["retry", "end", "dead"]
    assert (entry.dead_reason, entry.email["error_message"]) == ("expired", "again")
    assert entry.expires_at == clock.now + 90 * DAY


def test_archived_emails_stay_in_the_counts(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    die(queue)
    queue.run("SELECT mailgres.fold_rollups()")
    clock.forward(8 * DAY)
    queue.run(ARCHIVE, 10)
    queue.run("SELECT mailgres.fold_rollups()")
    assert queue.value("SELECT sum(emails) FROM mailgres.rollup_by_tenant") == 1


def test_a_locked_email_is_archived_later_with_its_last_log_row(
    committed: Queue, connect: Connect
) -> None:
    """The session with the lock writes its log row first; then the email is archived with it."""
    clock = Clock(committed.conn)
    held, free = put(committed, "failed", 2)
    clock.forward(8 * DAY)
    other = Queue(connect(autocommit=False))
    other.run("SELECT record_email_event(NULL, 'bounced', p_queue_id => %s)", held)
    assert committed.value(ARCHIVE, 10) == 1
    assert (archived(committed), ids(committed)) == ({free}, {held})
    other.conn.commit()
    assert committed.value(ARCHIVE, 10) == 1
    log = committed.value("SELECT log FROM mailgres.dead_letters WHERE queue_id = %s", held)
    assert [entry["event"] for entry in log] == ["retry", "end"]
    assert committed.value("SELECT event FROM email_events WHERE queue_id = %s", held) == "bounced"
    assert committed.value("SELECT count(*) FROM email_logs") == 0


def test_an_email_that_is_retried_meanwhile_is_not_archived(
    committed: Queue, connect: Connect
) -> None:
    clock = Clock(committed.conn)
    (queue_id,) = put(committed, "failed")
    clock.forward(8 * DAY)
    other = Queue(connect(autocommit=False))
    other.run("SELECT retry_email(%s)", queue_id)
    assert committed.value(ARCHIVE, 10) == 0
    other.conn.commit()
    assert committed.value(ARCHIVE, 10) == 0
    assert ids(committed) == {queue_id}


@pytest.mark.parametrize("limit", [10, 100])
def test_the_archive_is_purged_in_bounded_steps(queue: Queue, clock: Clock, limit: int) -> None:
    put(queue, "failed", 35)
    clock.forward(8 * DAY)
    assert queue.value(ARCHIVE, 100) == 35
    clock.forward(89 * DAY)
    young = put(queue, "failed", 3)
    clock.forward(8 * DAY)
    assert queue.value(ARCHIVE, 100) == 3
    taken = [queue.value(PURGE, limit) for _ in range(5)]
    assert taken == ([10, 10, 10, 5, 0] if limit == 10 else [35, 0, 0, 0, 0])
    assert archived(queue) == set(young)
