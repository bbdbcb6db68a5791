"""mark_email_sent: with the provider's id it is the truth; without one, no worker is overruled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.concurrency import at_once, wait_until_blocked
from support.postgres import Connect
from support.queue import WITHOUT_KEYS, Clock, Queue, is_leased, report

WITH_ID = "SELECT mark_email_sent(%s, 're_1')"
WITHOUT_ID = "SELECT mark_email_sent(%s)"


def failed(queue: Queue) -> None:
    queue.attempt("permanent", message="no")


def uncertain(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.attempt("ambiguous")


def started(queue: Queue) -> None:
    queue.start_attempts([queue.claim_one()])


# How an email stands when the processor reports: by what, and whether a worker or a final
# status stands against a report without an id.
STATES: dict[str, tuple[Callable[[Queue], Any], bool]] = {
    "pending": (lambda _: None, True),
    "claimed by a processor": (lambda queue: queue.claim_rpc(), True),
    "claimed by a worker": (lambda queue: queue.claim_one(), False),
    "begun by a worker": (started, False),
    "failed": (failed, False),
    "uncertain": (uncertain, False),
    "cancelled": (lambda queue: queue.run("SELECT cancel_email(id) FROM email_queue"), False),
}


@pytest.mark.parametrize("state", STATES)
def test_mark_email_sent_with_an_id_wins_in_every_state(
    queue: Queue, clock: Clock, state: str
) -> None:
    queue_id = queue.enqueue()
    STATES[state][0](queue)
    clock.forward(timedelta(seconds=9))
    assert queue.value(WITH_ID, queue_id) is True
    email = queue.email(queue_id)
    assert (email.status, email.sent_at) == ("sent", clock.now)
    assert (email.resend_id, email.provider_message_id, email.provider) == (
        "re_1",
        "re_1",
        "resend",
    )
    assert (email.dead_at, email.dead_reason, email.uncertain_since) == (None, None, None)
    assert (email.error_message, email.error_class, email.error_code) == (None, None, None)
    assert email.last_attempt_at is not None
    assert not is_leased(email)


@pytest.mark.parametrize("state", STATES)
def test_without_an_id_no_worker_is_overruled(queue: Queue, clock: Clock, state: str) -> None:
    queue_id = queue.enqueue()
    reach, settles = STATES[state]
    reach(queue)
    before = queue.email(queue_id)
    assert queue.value(WITHOUT_ID, queue_id) is settles
    email = queue.email(queue_id)
    if settles:
        assert (email.status, email.sent_at, email.provider) == ("sent", clock.now, None)
        assert not is_leased(email)
    else:
        assert email == before


@pytest.mark.parametrize("empty", ["", None])
def test_mark_email_sent_with_an_empty_id_counts_as_without_an_id(
    queue: Queue, empty: str | None
) -> None:
    queue_id = queue.enqueue()
    queue.claim_one()
    assert queue.value("SELECT mark_email_sent(%s, %s)", queue_id, empty) is False


@pytest.mark.parametrize("statement", [WITH_ID, WITHOUT_ID])
@pytest.mark.parametrize("queue_id", [uuid4(), None])
def test_mark_email_sent_returns_false_for_an_unknown_email(
    queue: Queue, statement: str, queue_id: UUID | None
) -> None:
    assert queue.value(statement, queue_id) is False


def test_a_second_mark_email_sent_returns_true_and_changes_nothing(
    queue: Queue, clock: Clock
) -> None:
    queue_id = queue.enqueue()
    queue.run(WITH_ID, queue_id)
    before = queue.email(queue_id)
    clock.forward(timedelta(minutes=1))
    assert queue.value("SELECT mark_email_sent(%s, 're_2')", queue_id) is True
    assert queue.value(WITHOUT_ID, queue_id) is True
    assert queue.email(queue_id) == before
    assert queue.events(queue_id) == ["sent"]


@pytest.mark.parametrize("outcome", ["sent", "transient", "permanent", "ambiguous"])
def test_a_worker_that_reports_after_mark_email_sent_changes_nothing(
    queue: Queue, outcome: str
) -> None:
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    queue.run(WITH_ID, queue_id)
    before = queue.email(queue_id)
    (done,) = queue.finish(report(claimed, outcome))
    assert done.refused == "MG030"
    assert queue.start_attempts([claimed]) == set()
    assert queue.email(queue_id) == before


@pytest.mark.parametrize(("statement", "wins"), [(WITH_ID, True), (WITHOUT_ID, False)])
def test_mark_email_sent_waits_for_the_claim_of_a_worker(
    committed: Queue,
    connect: Connect,
    statement: str,
    wins: bool,  # noqa: FBT001
) -> None:
    """The worker's claim is not committed yet when the processor reports."""
    queue_id = committed.enqueue()
    worker, processor = Queue(connect()), Queue(connect())
    with ThreadPoolExecutor(1) as pool:
        with worker.conn.transaction():
            claimed = worker.claim_one()
            answer = pool.submit(processor.value, statement, queue_id)
            wait_until_blocked(committed.conn, processor.conn, answer)
        assert answer.result() is wins
    (done,) = worker.finish(report(claimed, "transient"))
    assert done.refused == ("MG030" if wins else None)
    assert committed.email(queue_id).status == ("sent" if wins else "pending")


@pytest.mark.parametrize("outcome", ["sent", "transient", "permanent"])
def test_mark_email_sent_wins_over_a_report_of_a_worker(
    committed: Queue, connect: Connect, outcome: str
) -> None:
    """The worker's report is not committed yet; the email was sent."""
    queue_id = committed.enqueue()
    worker, processor = Queue(connect()), Queue(connect())
    claimed = worker.claim_one()
    with ThreadPoolExecutor(1) as pool:
        with worker.conn.transaction():
            worker.finish(report(claimed, outcome, provider_message_id="from the worker"))
            answer = pool.submit(processor.value, WITH_ID, queue_id)
            wait_until_blocked(committed.conn, processor.conn, answer)
        assert answer.result() is True
    assert committed.email(queue_id).status == "sent"


@pytest.mark.parametrize("outcome", ["sent", "transient", "permanent"])
def test_a_worker_reports_too_late_after_mark_email_sent(
    committed: Queue, connect: Connect, outcome: str
) -> None:
    """The processor's report is not committed yet: the worker's comes too late."""
    queue_id = committed.enqueue()
    worker, processor = Queue(connect()), Queue(connect())
    claimed = worker.claim_one()
    with ThreadPoolExecutor(1) as pool:
        with processor.conn.transaction():
            processor.run(WITH_ID, queue_id)
            answer = pool.submit(worker.finish, report(claimed, outcome))
            wait_until_blocked(committed.conn, worker.conn, answer)
        (done,) = answer.result()
    assert done.refused == "MG030"
    email = committed.email(queue_id)
    assert (email.status, email.resend_id) == ("sent", "re_1")
    assert committed.events(queue_id) == ["sent"]


def test_no_worker_gets_an_email_that_is_held_and_sent_inline(queue: Queue, clock: Clock) -> None:
    """Enqueue for later, send inline, mark: no worker ever gets it."""
    queue_id = queue.enqueue(scheduled_for=clock.now + timedelta(minutes=2))
    assert queue.claim() == queue.claim_rpc() == []
    assert queue.value(WITH_ID, queue_id) is True
    clock.forward(timedelta(hours=1))
    assert queue.claim() == queue.claim_rpc() == []


def test_a_held_email_is_claimed_after_two_minutes_if_the_inline_send_dies(
    queue: Queue, clock: Clock
) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + timedelta(minutes=2))
    clock.forward(timedelta(minutes=2))
    assert queue.claim_one().id == queue_id


def test_busy_workers_do_not_claim_held_emails(committed: Queue, connect: Connect) -> None:
    """Applications enqueue with a hold and mark, while workers claim all the time."""
    applications = [Queue(connect()) for _ in range(2)]
    workers = [Queue(connect()) for _ in range(2)]

    def send_inline(queue: Queue) -> list[object]:
        for _ in range(25):
            queue_id = queue.value(
                "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',"
                " p_scheduled_for => now() + interval '2 minutes')"
            )
            assert queue.value(WITH_ID, queue_id) is True
        return []

    def claim(queue: Queue) -> list[object]:
        return [email for _ in range(50) for email in queue.claim()]

    calls = [partial(send_inline, queue) for queue in applications]
    calls += [partial(claim, queue) for queue in workers]
    assert at_once(calls) == [[], [], [], []]
    assert committed.value("SELECT count(*) FROM email_queue WHERE status = 'sent'") == 50
