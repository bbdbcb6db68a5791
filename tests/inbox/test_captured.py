"""What the provider `capture` keeps: the message and its files, within bounds and for a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from inbox.sending import PNG, enqueue, file_of
from mailgres.testing import travel
from support.queue import Queue

FILES = "SELECT filename, content_type, content_id, bytes, content FROM mailgres.captured_files"
MIB = 1024 * 1024


def test_a_captured_message_keeps_its_files_after_the_email_is_deleted(
    queue: Queue, run_worker: Callable[[], None]
) -> None:
    image = file_of(PNG, "logo.png", content_type="image/png", content_id="logo")
    enqueue(queue, file_of(b"abc"), image)
    run_worker()
    queue.run("DELETE FROM email_queue")
    assert queue.rows(f"{FILES} ORDER BY position") == [
        ("a.txt", "application/octet-stream", None, 3, b"abc"),
        ("logo.png", "image/png", "logo", len(PNG), PNG),
    ]


def test_files_beyond_40_mib_of_one_message_are_listed_without_their_content(
    queue: Queue, run_worker: Callable[[], None]
) -> None:
    queue_id = enqueue(queue, file_of(b"abc"))
    queue.run(
        "INSERT INTO mailgres.attachments (queue_id, position, filename, content)"
        " VALUES (%s, 2, 'big', convert_to(repeat('x', 41943040), 'UTF8'))",
        queue_id,
    )
    run_worker()
    found = queue.rows(f"{FILES} ORDER BY position")
    assert [(row.filename, row.bytes, row.content) for row in found] == [
        ("a.txt", 3, None),
        ("big", 40 * MIB, None),
    ]
    assert queue.email(queue_id).status == "sent"


def test_captured_messages_expire_after_captured_ttl_with_their_files(
    queue: Queue, run_worker: Callable[[], None]
) -> None:
    enqueue(queue, file_of(b"abc"))
    run_worker()
    travel(queue.conn, timedelta(days=6, hours=23))
    assert queue.value("SELECT mailgres.delete_captured()") == 0
    travel(queue.conn, timedelta(hours=2))
    assert queue.value("SELECT mailgres.delete_captured()") == 1
    for table in ("captured", "captured_files"):
        assert queue.value(f"SELECT count(*) FROM mailgres.{table}") == 0
    assert queue.value("SELECT count(*) FROM email_queue") == 1


def test_beyond_captured_bytes_the_oldest_files_lose_their_content(
    queue: Queue, run_worker: Callable[[], None]
) -> None:
    for letter in (b"a", b"b", b"c"):
        enqueue(queue, file_of(letter * 100, letter.decode()))
        run_worker()
    queue.run("UPDATE mailgres.settings SET captured_bytes = 200")
    queue.run("SELECT mailgres.delete_captured()")
    kept = queue.rows("SELECT filename, content IS NOT NULL AS kept FROM mailgres.captured_files")
    assert {row.filename: row.kept for row in kept} == {"a": False, "b": True, "c": True}
    assert queue.value("SELECT count(*) FROM mailgres.captured") == 3
