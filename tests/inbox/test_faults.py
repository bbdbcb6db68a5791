"""Faults on demand: the next email bounces, times out, is rejected, or gets no answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from inbox.sending import enqueue
from mailgres.testing import travel
from support.postgres import Connect
from support.queue import Queue

Run = Callable[[], None]
SET = "SELECT mailgres.set_capture_fault(%s, %s, %s)"


def captured(queue: Queue) -> int:
    return int(queue.value("SELECT count(*) FROM mailgres.captured"))


def later(queue: Queue) -> None:
    """Let the time of a retry come."""
    travel(queue.conn, timedelta(minutes=1))


def test_the_next_email_to_an_address_times_out_and_the_retry_arrives(
    queue: Queue, run_worker: Run
) -> None:
    queue.run(SET, "timeout", "Ana@Example.com", None)
    ana, ben = enqueue(queue), enqueue(queue, recipient="ben@example.com")
    run_worker()
    email = queue.email(ana)
    assert (email.status, email.error_code, email.error_class) == (
        "pending",
        "timeout",
        "transient",
    )
    assert (queue.email(ben).status, captured(queue)) == ("sent", 1)
    later(queue)
    run_worker()
    assert (queue.email(ana).status, captured(queue)) == ("sent", 2)


def test_the_next_email_of_a_template_is_rejected_for_good(queue: Queue, run_worker: Run) -> None:
    queue.run(SET, "reject", None, "welcome_user")
    other, welcome = enqueue(queue), queue.enqueue("welcome_user")
    again = queue.enqueue("welcome_user")
    run_worker()
    assert (queue.email(other).status, queue.email(again).status) == ("sent", "sent")
    email = queue.email(welcome)
    assert (email.status, email.dead_reason, email.error_code) == (
        "failed",
        "permanent",
        "rejected",
    )
    assert captured(queue) == 2


def test_an_accepted_but_unanswered_email_is_kept_once_and_settled_by_the_same_key(
    queue: Queue, run_worker: Run
) -> None:
    queue.run(SET, "unanswered", None, None)
    queue_id = enqueue(queue)
    run_worker()
    email = queue.email(queue_id)
    assert (email.status, email.error_class, captured(queue)) == ("pending", "ambiguous", 1)
    assert email.uncertain_since is not None
    later(queue)
    run_worker()
    assert (queue.email(queue_id).status, captured(queue)) == ("sent", 1)


def test_a_bounce_is_reported_after_the_email_was_sent_and_suppresses_the_address(
    queue: Queue, run_worker: Run
) -> None:
    queue.run(SET, "bounce", "ana@example.com", None)
    queue_id = enqueue(queue)
    run_worker()
    assert queue.events(queue_id) == ["sent"]
    assert queue.value("SELECT mailgres.report_captured()") == 1
    assert queue.value("SELECT mailgres.report_captured()") == 0
    assert queue.value("SELECT event FROM email_events WHERE queue_id = %s", queue_id) == "bounced"
    again = enqueue(queue)
    run_worker()
    assert queue.email(again).status == "cancelled"


def test_a_bounce_waits_until_the_email_counts_as_sent(queue: Queue) -> None:
    queue.run(SET, "bounce", None, None)
    queue_id = queue.enqueue()
    queue.claim()
    message = {"key": "k", "queue_id": str(queue_id), "message": {"to": "ana@example.com"}}
    assert queue.rows("SELECT * FROM mailgres.capture(%s)", Jsonb([message])) == [("k", "bounce")]
    assert queue.value("SELECT mailgres.report_captured()") == 0


def test_two_workers_at_once_take_one_fault_once(queue: Queue, connect: Connect) -> None:
    queue.run(SET, "reject", None, None)
    sessions = [connect() for _ in range(4)]

    def capture(session: psycopg.Connection) -> int:
        message = [{"key": str(id(session)), "queue_id": str(queue_id), "message": {"to": "a@b.c"}}]
        return len(
            session.execute("SELECT * FROM mailgres.capture(%s)", [Jsonb(message)]).fetchall()
        )

    queue_id = queue.enqueue()
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(capture, sessions)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explode", None, None), "there is no such fault"),
        ((None, None, None), "there is no such fault"),
        (("bounce", "", None), "the address or the template of the fault is not valid"),
        (("bounce", None, "x" * 201), "the address or the template of the fault is not valid"),
    ],
)
def test_a_fault_that_cannot_be_simulated_is_refused(
    queue: Queue, arguments: tuple[str | None, ...], message: str
) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        queue.run(SET, *arguments)
    assert caught.value.sqlstate == "MG077"
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0


def test_at_most_100_faults_wait(queue: Queue) -> None:
    for _ in range(100):
        queue.run(SET, "bounce", None, None)
    with pytest.raises(psycopg.Error, match="100 faults are waiting"):
        queue.run(SET, "bounce", None, None)
    first = queue.value("SELECT min(id) FROM mailgres.capture_faults")
    assert queue.value("SELECT mailgres.remove_capture_fault(%s)", first) is True
    assert queue.value("SELECT mailgres.remove_capture_fault(%s)", first) is False
