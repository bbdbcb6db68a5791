"""Which emails the inbox lists, finds and deletes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from inbox.sending import enqueue, file_of
from support.queue import Queue

Run = Callable[[], None]
SHOWN = "SELECT * FROM mailgres.inbox(%s)"


def shown(queue: Queue, search: str | None = None) -> list[Any]:
    return queue.rows(SHOWN, search)


def delete(queue: Queue, *ids: UUID) -> int:
    return int(queue.value("SELECT mailgres.delete_from_inbox(%s::uuid[])", list(ids) or None))


def test_the_inbox_shows_what_was_captured_what_waits_and_what_failed(
    queue: Queue, run_worker: Run
) -> None:
    enqueue(queue, file_of(b"x"), cc=["ben@example.com"], subject="Sent one")
    queue.run("SELECT mailgres.set_capture_fault('reject', 'bad@example.com')")
    enqueue(queue, recipient="bad@example.com", subject="Bad one")
    run_worker()
    enqueue(queue, recipient="later@example.com", scheduled_for="2100-01-01")
    found = shown(queue)
    assert [(row.recipient_email, row.status, row.captured) for row in found] == [
        ("later@example.com", "pending", False),
        ("ana@example.com", "sent", True),
        ("bad@example.com", "failed", False),
    ]
    sent = found[1]
    assert (sent.subject, sent.preview, sent.files, sent.more_recipients) == (
        *("Sent one", "Hi Ana"),
        *(1, 1),
    )


def test_emails_that_other_providers_send_are_not_in_the_inbox_and_cannot_be_deleted_from_it(
    queue: Queue,
) -> None:
    queue.use_provider("resend")
    sent, waiting = queue.enqueue(), queue.enqueue()
    queue.run("SELECT mark_email_sent(%s, 're_1')", sent)
    assert shown(queue) == []
    assert queue.value("SELECT mailgres.inbox_email(%s)", sent) is None
    assert delete(queue, sent, waiting) == 0
    assert delete(queue) == 0
    assert queue.value("SELECT count(*) FROM email_queue") == 2


@pytest.mark.parametrize(
    ("search", "count"),
    [
        ("ANA@example", 1),
        ("invoice", 1),
        ("twelve euros", 1),
        ("copy@example.com", 1),
        ("monthly", 1),
        ("%", 0),
        ("nothing like it", 0),
        ("  ", 2),
    ],
)
def test_search_finds_by_address_subject_text_and_template(
    queue: Queue, run_worker: Run, search: str, count: int
) -> None:
    enqueue(queue, subject="Your invoice", text="It is TWELVE euros", cc=["copy@example.com"])
    enqueue(queue, recipient="ben@example.com", template="monthly")
    run_worker()
    assert len(shown(queue, search)) == count


AT_ONCE = """SELECT enqueue_email(NULL, 'welcome_user', 'n' || n || '@example.com',
    p_scheduled_for => now() + interval '1 day') FROM generate_series(1, 20) n"""


def test_pages_of_the_inbox_show_every_email_once(queue: Queue, run_worker: Run) -> None:
    for _ in range(7):
        enqueue(queue)
    run_worker()
    queue.run(AT_ONCE)  # they wait, and all have the same created_at
    queue.run("UPDATE mailgres.captured SET captured_at = now()")
    found: list[Any] = []
    while page := queue.rows(
        "SELECT * FROM mailgres.inbox(NULL, %s, 3, %s)",
        *((found[-1].at, found[-1].queue_id) if found else (None, None)),
    ):
        found += page
    ids = queue.value("SELECT array_agg(id ORDER BY id) FROM email_queue")
    assert sorted(row.queue_id for row in found) == ids
    assert len(ids) == 27


def test_deleting_from_the_inbox_removes_email_message_files_and_log(
    queue: Queue, run_worker: Run
) -> None:
    first, second = enqueue(queue, file_of(b"x")), enqueue(queue)
    run_worker()
    assert delete(queue, first) == 1
    assert [row.queue_id for row in shown(queue)] == [second]
    assert delete(queue) == 1
    for table in ("email_queue", "email_logs", "mailgres.captured", "mailgres.captured_files"):
        assert queue.value(f"SELECT count(*) FROM {table}") == 0
    assert delete(queue, first) == 0


def test_an_email_under_a_lease_stays_in_the_inbox(queue: Queue) -> None:
    queue_id = enqueue(queue)
    queue.claim()
    assert delete(queue, queue_id) == 0
    assert queue.email(queue_id).status == "sending"


def test_the_state_of_the_inbox_changes_with_every_email_and_fault(
    queue: Queue, run_worker: Run
) -> None:
    states: list[str] = []

    def changed(queue_id: UUID | None = None) -> bool:
        states.append(queue.value("SELECT mailgres.inbox_state(%s)", queue_id))
        return len(states) == 1 or states[-1] != states[-2]

    changed()
    queue_id = enqueue(queue)
    assert changed()
    assert not changed()
    run_worker()
    assert changed()
    queue.run("SELECT mailgres.set_capture_fault('bounce')")
    assert changed()
    states.clear()
    changed(queue_id)
    assert not changed(queue_id)
    queue.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", queue_id)
    assert changed(queue_id)


def test_an_email_of_the_inbox_has_its_message_files_and_log(queue: Queue, run_worker: Run) -> None:
    queue_id = enqueue(queue, file_of(b"abc", "a.txt"))
    run_worker()
    found = queue.value("SELECT mailgres.inbox_email(%s)", queue_id)
    assert found["message"]["html"] == "<p>Hi Ana</p>"
    assert [(file["filename"], file["bytes"], file["kept"]) for file in found["files"]] == [
        ("a.txt", 3, True)
    ]
    assert [entry["event"] for entry in found["log"]] == ["sent"]
    file = queue.row("SELECT * FROM mailgres.inbox_file(%s, 1)", queue_id)
    assert (file.filename, file.content) == ("a.txt", b"abc")
