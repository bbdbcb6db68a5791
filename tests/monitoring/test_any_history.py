"""Whatever happened to emails, every view says what the emails and their log say themselves."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, given, settings

from monitoring.answers import assert_views_are_right, note, remember
from support.histories import STEPS, History, Step, histories, live, one
from support.queue import Clock, Queue


def leaving(statement: str, after: timedelta = timedelta()) -> Step:
    """Something by which emails leave the queue."""

    def step(queue: Queue, clock: Clock, place: int) -> None:
        clock.forward(after)
        note(queue)
        do = one(statement) if "%s" in statement else lambda *_: queue.run(statement)
        do(queue, clock, place)

    return step


def measure(queue: Queue, clock: Clock, place: int) -> None:
    """The depth is counted, and believed until it is too old."""
    queue.run("SELECT mailgres.measure_depth('0')")
    clock.forward((1 + place % 2) * timedelta(minutes=1, seconds=1))


LEAVING = [
    *STEPS,
    one("SELECT record_email_event(NULL, 'bounced', p_queue_id => %s)"),
    measure,
    leaving("DELETE FROM email_queue WHERE id = %s"),
    leaving("SELECT mailgres.archive_dead_letters()", timedelta(days=7)),
    leaving("SELECT mailgres.delete_expired_emails()", timedelta(days=30)),
    leaving("SET CONSTRAINTS ALL IMMEDIATE; TRUNCATE email_queue CASCADE"),
]


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories(LEAVING))
def test_every_view_is_right_after_any_history(
    queue: Queue, clock: Clock, history: History
) -> None:
    """Exact at any moment: before the deltas are added, while they are, and afterwards."""
    with queue.conn.transaction(force_rollback=True):
        remember(queue)
        queue.run("UPDATE mailgres.settings SET sent_ttl = '20 days'")
        live(queue, clock, LEAVING, history)
        clock.forward(timedelta(hours=1))  # no count of the depth is believed any more
        assert_views_are_right(queue)
        queue.run("SELECT mailgres.fold_rollups(3)")
        assert_views_are_right(queue)
        while queue.value("SELECT mailgres.fold_rollups(7)"):
            pass
        assert_views_are_right(queue)
        queue.run("SELECT mailgres.measure_depth('0')")
        queue.run("SELECT mailgres.delete_expired_rollups()")
        assert_views_are_right(queue)
