"""The same key with the same content is one email, however often and by how many it is enqueued."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.concurrency import at_once, wait_until_blocked
from support.postgres import Connect
from support.queue import RECIPIENT, Queue


def count(queue: Queue) -> int:
    number: int = queue.value("SELECT count(*) FROM email_queue")
    return number


def enqueue_many(queue: Queue, *requests: dict[str, Any]) -> list[UUID]:
    filled = [
        {"template_type": "welcome_user", "recipient_email": RECIPIENT, **given}
        for given in requests
    ]
    return [row[0] for row in queue.rows("SELECT enqueue_emails(%s)", Jsonb(filled))]


def test_the_same_key_and_content_enqueue_once(queue: Queue) -> None:
    first = queue.enqueue(idempotency_key="k", payload={"a": 1, "b": 2})
    assert queue.enqueue(idempotency_key="k", payload={"b": 2, "a": 1}) == first
    assert count(queue) == 1


@pytest.mark.parametrize("status", ["sent", "failed", "cancelled"])
def test_a_key_still_counts_when_its_email_is_settled(queue: Queue, status: str) -> None:
    first = queue.enqueue(idempotency_key="k")
    queue.run("UPDATE email_queue SET status = %s", status)
    assert queue.enqueue(idempotency_key="k") == first
    assert (count(queue), queue.email(first).status) == (1, status)


def test_a_key_belongs_to_a_tenant(queue: Queue) -> None:
    ids = {queue.enqueue(idempotency_key="k", tenant_id=tenant) for tenant in ("a", "b", "default")}
    assert len(ids) == count(queue) == 3


def test_emails_without_an_idempotency_key_are_enqueued_each_time(queue: Queue) -> None:
    assert queue.enqueue() != queue.enqueue()


OTHER = [
    {"recipient_email": "bob@example.com"},
    {"template_type": "signup_confirmation"},
    {"payload": {"name": "Bob"}},
    {"subject": "Hello", "text": "Hello"},
    {"from_email": "shop@example.com"},
    {"reply_to": "shop@example.com"},
    {"cc": ["bob@example.com"]},
    {"headers": {"X-Kind": "news"}},
    {"tags": {"kind": "news"}},
    {"attachments": Jsonb([{"filename": "a.txt", "content": "YQ=="}])},
]


@pytest.mark.parametrize("other", OTHER, ids=lambda other: next(iter(other)))
def test_a_key_with_other_content_is_refused(queue: Queue, other: dict[str, Any]) -> None:
    queue.enqueue(idempotency_key="k")
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.enqueue(**{"idempotency_key": "k", **other})
    assert error.value.sqlstate == "MG009"
    assert error.value.diag.message_hint
    assert count(queue) == 1


def test_keys_count_within_and_between_bulk_calls(queue: Queue) -> None:
    first = queue.enqueue(idempotency_key="k1")
    ids = enqueue_many(
        queue, {"idempotency_key": "k2"}, {"idempotency_key": "k1"}, {"idempotency_key": "k2"}, {}
    )
    assert ids[1] == first
    assert ids[0] == ids[2]
    assert len(set(ids)) == count(queue) == 3
    stored = {row[0] for row in queue.rows("SELECT id FROM email_queue")}
    assert stored == set(ids)


def test_in_bulk_other_content_refuses_all(queue: Queue) -> None:
    other: dict[str, Any] = {"idempotency_key": "k", "payload": {"a": 1}}
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        enqueue_many(queue, {}, {"idempotency_key": "k"}, other)
    assert (error.value.sqlstate, count(queue)) == ("MG009", 0)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_second_enqueue_with_the_same_key_waits_for_the_first_to_commit(
    committed: Queue, connect: Connect, end: str
) -> None:
    """The second waits for the first: if that is rolled back, the second is the first."""
    first, second = Queue(connect()), Queue(connect())
    with ThreadPoolExecutor(1) as pool:
        try:
            first.run("BEGIN")
            first_id = first.enqueue(idempotency_key="k")
            again = pool.submit(second.enqueue, idempotency_key="k")
            wait_until_blocked(committed.conn, second.conn, again)
        finally:
            first.run(end)
        second_id = again.result()
    assert (second_id == first_id) == (end == "COMMIT")
    assert [row[0] for row in committed.rows("SELECT id FROM email_queue")] == [second_id]


def test_many_callers_at_once_with_one_key_enqueue_once(committed: Queue, connect: Connect) -> None:
    queues = [Queue(connect()) for _ in range(6)]
    ids = at_once([partial(queue.enqueue, idempotency_key="k") for queue in queues])
    assert len(set(ids)) == count(committed) == 1
