"""Random lives of emails: what can happen to a queue, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from hypothesis import strategies as st

from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

Step = Callable[[Queue, Clock, int], object]
History = list[tuple[int, int]]


@contextmanager
def refusals() -> Iterator[None]:
    """Let the queue refuse what makes no sense; any other error is one."""
    try:
        yield
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith("MG"):
            raise


def one(statement: str) -> Step:
    """Something that is done to one email: that at some place in the queue."""

    def step(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
        rows = queue.rows("SELECT id FROM email_queue ORDER BY id")
        if rows:
            queue.run(statement, rows[place % len(rows)].id)

    return step


def enqueue(queue: Queue, clock: Clock, place: int) -> None:
    """One more email, now and then for later."""
    queue.enqueue(
        (HOLD, RESEND)[place % 2],
        tenant_id=f"t{place % 3}",
        max_retries=place % 2,
        scheduled_for=clock.now + timedelta(minutes=5) if place == 7 else None,
    )


def work(outcome: str) -> Step:
    """A claim, and its outcome."""

    def step(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
        claimed = queue.claim(limit=1 + place % 4)
        if claimed:
            queue.start_attempts(claimed)
            queue.finish(*(report(email, outcome, code=f"E{place % 2}") for email in claimed))

    return step


def wait(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    """Time passes."""
    clock.forward((1 + place) * timedelta(minutes=11))


def switch(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    """Another provider."""
    queue.use_provider((WITH_KEYS, WITHOUT_KEYS)[place % 2])


def lose(queue: Queue, clock: Clock, place: int) -> None:
    """A worker dies."""
    queue.claim(limit=1 + place % 3)
    clock.forward(timedelta(minutes=1))
    queue.reap()


def fold(queue: Queue, clock: Clock, place: int) -> None:  # noqa: ARG001
    """Some deltas are added to the rollups."""
    queue.run("SELECT mailgres.fold_rollups(%s)", 1 + place)


STEPS: list[Step] = [
    enqueue,
    enqueue,
    *(work(outcome) for outcome in ("sent", "transient", "permanent", "ambiguous", "config")),
    wait,
    switch,
    lose,
    fold,
    one("SELECT retry_email(%s, true)"),
    one("SELECT cancel_email(%s)"),
    one("SELECT mark_email_sent(%s, 're_1')"),
    one("SELECT mark_email_sent(%s)"),
    one("SELECT mark_email_failed(%s, 'no')"),
    one("SELECT record_email_event(NULL, 'failed', p_queue_id => %s)"),
    one("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)"),
    *(
        one(f"UPDATE email_queue SET {assignment} WHERE id = %s")
        for assignment in (
            *("status = 'pending'", "status = 'sent'", "status = 'failed'"),
            *("status = 'cancelled'", "tenant_id = 'moved'", "template_type = 'moved'"),
            *("error_code = 'changed'", "retries = retries + 1", "next_retry_at = NULL"),
            "created_at = created_at - interval '1 hour'",
        )
    ),
    lambda queue, *_: queue.run("UPDATE email_queue SET status = 'failed' WHERE retries = 0"),
    lambda queue, *_: queue.run("UPDATE email_queue SET status = 'pending' WHERE retries = 0"),
]
"""What leaves every email in the queue."""


def histories(steps: Sequence[Step]) -> st.SearchStrategy[History]:
    """Return which steps, and for the email at which place."""
    return st.lists(
        st.tuples(st.sampled_from(range(len(steps))), st.integers(0, 7)), min_size=5, max_size=60
    )


def live(queue: Queue, clock: Clock, steps: Sequence[Step], history: History) -> None:
    """Let all of it happen."""
    for number, place in history:
        with refusals(), queue.conn.transaction():
            steps[number](queue, clock, place)
