"""mark_email_failed: retried by the policy, dead after the last retry, never against a worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from support.concurrency import wait_until_blocked
from support.postgres import Connect
from support.queue import Clock, Queue, is_leased, report

FAILED = "SELECT mark_email_failed(%s, 'mailbox of bob@example.com is full')"
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("claimed", [False, True])
def test_mark_email_failed_retries_by_the_policy_and_then_marks_dead(
    queue: Queue, clock: Clock, *, claimed: bool
) -> None:
    queue_id = queue.enqueue()
    for retries, wait in enumerate((MINUTE, 5 * MINUTE, 15 * MINUTE), 1):
        if claimed:
            assert [email.retries for email in queue.claim_rpc()] == [retries - 1]
        assert queue.value(FAILED, queue_id) is True
        email = queue.email(queue_id)
        assert (email.status, email.retries) == ("pending", retries)
        assert (email.next_retry_at, email.last_attempt_at) == (clock.now + wait, clock.now)
        assert email.error_message == "mailbox of <address> is full"
        assert not is_leased(email)
        assert queue.claim_rpc() == queue.claim() == []
        clock.forward(wait)
    if claimed:
        queue.claim_rpc()
    assert queue.value(FAILED, queue_id) is True
    email = queue.email(queue_id)
    assert (email.status, email.retries, email.dead_reason) == ("failed", 3, "exhausted")
    assert (email.dead_at, email.error_class) == (clock.now, "transient")
    assert not is_leased(email)


@pytest.mark.parametrize("message", ["", None])
def test_mark_email_failed_accepts_a_missing_message(queue: Queue, message: str | None) -> None:
    queue_id = queue.enqueue(max_retries=0)
    assert queue.value("SELECT mark_email_failed(%s, %s)", queue_id, message) is True
    assert queue.email(queue_id).error_message == "failed without a message"


@pytest.mark.parametrize("begin", [False, True])
def test_a_worker_is_not_disturbed(queue: Queue, begin: bool) -> None:  # noqa: FBT001
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    if begin:
        queue.start_attempts([claimed])
    before = queue.email(queue_id)
    assert queue.value(FAILED, queue_id) is False
    assert queue.email(queue_id) == before
    (done,) = queue.finish(report(claimed, "sent"))
    assert done.refused is None


@pytest.mark.parametrize("status", ["sent", "failed", "cancelled"])
def test_mark_email_failed_changes_no_settled_email(queue: Queue, status: str) -> None:
    queue_id = queue.enqueue()
    queue.run("UPDATE email_queue SET status = %s", status)
    before = queue.email(queue_id)
    assert queue.value(FAILED, queue_id) is False
    assert queue.email(queue_id) == before


@pytest.mark.parametrize("queue_id", [uuid4(), None])
def test_mark_email_failed_returns_false_for_an_unknown_email(
    queue: Queue, queue_id: UUID | None
) -> None:
    assert queue.value(FAILED, queue_id) is False


def test_mark_email_failed_marks_an_email_without_time_to_retry_as_dead(
    queue: Queue, clock: Clock
) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + MINUTE)
    assert queue.value(FAILED, queue_id) is True
    assert queue.email(queue_id).dead_reason == "expired"


def test_mark_email_failed_waits_for_the_claim_of_a_worker(
    committed: Queue, connect: Connect
) -> None:
    """The worker's claim is not committed yet when the processor reports."""
    queue_id = committed.enqueue()
    worker, processor = Queue(connect()), Queue(connect())
    with ThreadPoolExecutor(1) as pool:
        with worker.conn.transaction():
            claimed = worker.claim_one()
            answer = pool.submit(processor.value, FAILED, queue_id)
            wait_until_blocked(committed.conn, processor.conn, answer)
        assert answer.result() is False
    assert committed.email(queue_id) == claimed


def test_a_worker_does_not_claim_an_email_that_is_being_marked_failed(
    committed: Queue, connect: Connect
) -> None:
    """The processor's report is not committed yet when a worker claims."""
    queue_id = committed.enqueue()
    worker, processor = Queue(connect()), Queue(connect())
    with processor.conn.transaction():
        assert processor.value(FAILED, queue_id) is True
        assert worker.claim() == []
    assert worker.claim() == []
    assert committed.email(queue_id).retries == 1


def test_one_of_two_reports_of_the_last_attempt_makes_the_email_dead(
    committed: Queue, connect: Connect
) -> None:
    """One of them makes it dead, the other finds it so."""
    queue_id = committed.enqueue(max_retries=0)
    committed.claim_rpc()
    first, second = Queue(connect()), Queue(connect())
    with ThreadPoolExecutor(1) as pool:
        with first.conn.transaction():
            assert first.value(FAILED, queue_id) is True
            answer = pool.submit(second.value, FAILED, queue_id)
            wait_until_blocked(committed.conn, second.conn, answer)
        assert answer.result() is False
    assert committed.events(queue_id) == ["dead"]


def test_mark_email_sent_corrects_an_earlier_failure(queue: Queue) -> None:
    """Two runs of a processor overlapped; the one that sent it is right."""
    queue_id = queue.enqueue(max_retries=0)
    queue.run(FAILED, queue_id)
    assert queue.value("SELECT mark_email_sent(%s, 're_1')", queue_id) is True
    assert queue.value(FAILED, queue_id) is False
    assert queue.email(queue_id).status == "sent"
