"""Sent and cancelled emails leave when their time is over, whatever else is old."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from janitor.harness import DAY, SECOND, ids, put
from support.postgres import Connect
from support.queue import Clock, Queue

RETAIN = "SELECT mailgres.delete_expired_emails(%s)"


def delete_expired(queue: Queue, limit: int, calls: int) -> list[int]:
    return [queue.value(RETAIN, limit) for _ in range(calls)]


@pytest.mark.parametrize("status", ["sent", "cancelled"])
def test_sent_emails_are_deleted_after_ninety_days(queue: Queue, clock: Clock, status: str) -> None:
    queue_id = queue.enqueue(attachments=Jsonb([{"filename": "a", "content": "YQ=="}]))
    queue.run(
        "SELECT mailgres.capture(%s)",
        Jsonb([{"key": "k", "queue_id": str(queue_id), "message": {}}]),
    )
    clock.forward(10 * DAY)  # counted from its end, not from its beginning
    if status == "sent":
        queue.attempt("sent")
    else:
        queue.run("SELECT cancel_email(%s)", queue_id)
    clock.forward(90 * DAY)
    assert delete_expired(queue, 10, 2) == [0, 0]
    assert ids(queue) == {queue_id}
    clock.forward(SECOND)
    assert delete_expired(queue, 10, 2) == [1, 0]
    for table in ("email_queue", "email_logs", "mailgres.attachments", "mailgres.captured"):
        assert queue.value(f"SELECT count(*) FROM {table}") == 0


def test_only_old_sent_and_cancelled_emails_are_deleted(queue: Queue, clock: Clock) -> None:
    stay = {*put(queue, "pending"), *put(queue, "failed")}
    stay.add(queue.enqueue())
    queue.claim()  # being sent
    put(queue, "sent")
    put(queue, "cancelled")
    clock.forward(91 * DAY)
    young = {*put(queue, "sent"), *put(queue, "cancelled")}
    assert delete_expired(queue, 10, 3) == [2, 0, 0]
    assert ids(queue) == stay | young
    assert queue.value("SELECT count(DISTINCT queue_id) FROM email_logs") == 4


def test_the_retention_time_of_sent_emails_is_a_setting(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE mailgres.settings SET sent_ttl = '1 day'")
    put(queue, "sent")
    clock.forward(DAY)
    assert queue.value(RETAIN, 10) == 0
    clock.forward(SECOND)
    assert queue.value(RETAIN, 10) == 1


def test_a_very_long_retention_time_is_no_error(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE mailgres.settings SET sent_ttl = '1000 years'")
    put(queue, "sent")
    clock.forward(10_000 * DAY)
    assert delete_expired(queue, 10, 2) == [0, 0]


def test_expired_emails_are_deleted_in_steps_oldest_first(queue: Queue, clock: Clock) -> None:
    emails = put(queue, "sent", 35)
    clock.forward(91 * DAY)
    assert queue.value(RETAIN, 10) == 10
    assert ids(queue) == set(sorted(emails)[10:])
    assert delete_expired(queue, 10, 4) == [10, 10, 5, 0]


def test_expired_emails_behind_many_that_stay_are_found(queue: Queue, clock: Clock) -> None:
    """A call looks at 20 for each that may leave, and the next goes on from there."""
    before = put(queue, "failed", 500)
    put(queue, "sent", 15)
    between = put(queue, "pending", 210)
    put(queue, "sent", 5)
    clock.forward(91 * DAY)
    taken = delete_expired(queue, 10, 6)
    assert taken[:2] == [0, 0]
    assert sum(taken) == 20
    assert ids(queue) == {*before, *between}


def test_one_call_of_retention_reads_few_rows(queue: Queue, clock: Clock) -> None:
    put(queue, "failed", 1000)
    clock.forward(91 * DAY)
    counter = "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'email_queue'"
    for _ in range(8):
        before = queue.value(counter)
        queue.run(RETAIN, 10)
        # Once to see where to stop, once to look; and for ten logs whether their email is there.
        assert queue.value(counter) - before <= 2 * 200 + 1 + 10


def test_retention_starts_over_after_the_last_email(queue: Queue, clock: Clock) -> None:
    """What had to stay at first is found when its time has come."""
    (late,) = put(queue, "pending")
    put(queue, "sent", 3)
    clock.forward(91 * DAY)
    assert delete_expired(queue, 10, 3) == [3, 0, 0]
    queue.run("UPDATE email_queue SET status = 'sent' WHERE id = %s", late)
    clock.forward(90 * DAY)
    assert delete_expired(queue, 10, 3) == [0, 0, 0]
    clock.forward(SECOND)
    assert sum(delete_expired(queue, 10, 2)) == 1
    assert ids(queue) == set()


def test_every_call_of_a_round_works(queue: Queue, clock: Clock) -> None:
    """A round that has ended costs no call: by hand, one call removes what is there."""
    for _ in range(4):
        put(queue, "sent", 2)
        clock.forward(91 * DAY)
        assert queue.value(RETAIN, 10) == 2


def put_random(queue: Queue, status: str, count: int) -> list[UUID]:
    """Emails of an application that brings ids of its own, as old tables have them."""
    emails = put(queue, status, count)
    given = [uuid4() for _ in emails]
    for table, column in (("email_logs", "queue_id"), ("email_queue", "id")):
        if table == "email_logs":
            queue.run("DELETE FROM email_logs WHERE queue_id = ANY (%s)", emails)
        else:
            queue.run(
                f"UPDATE {table} q SET {column} = x.new FROM unnest(%s::uuid[], %s::uuid[])"
                f" x(old, new) WHERE q.{column} = x.old",
                emails,
                given,
            )
    return given


def test_emails_with_random_ids_are_deleted_too(queue: Queue, clock: Clock) -> None:
    put_random(queue, "sent", 50)
    put_random(queue, "cancelled", 50)
    put(queue, "sent", 10)
    stay = put_random(queue, "failed", 50)
    clock.forward(91 * DAY)
    young = put_random(queue, "sent", 50)
    assert sum(delete_expired(queue, 10, 30)) == 110
    assert ids(queue) == {*stay, *young}


def test_first_id_of_returns_the_smallest_id_of_a_time(queue: Queue) -> None:
    """The ids given since are larger, and those given before are not."""
    since, given, from_now = queue.row(
        "SELECT mailgres.first_id_of(clock_timestamp()) AS since, mailgres.uuid_v7(),"
        " mailgres.first_id_of(clock_timestamp() + interval '1 ms') AS from_now"
    )
    assert since < given < from_now


@pytest.mark.parametrize(
    ("time", "first"),
    [
        ("1970-01-01 00:00:00.0019+00", UUID(int=1 << 80)),
        ("0001-01-01 00:00+00", UUID(int=0)),
        ("-infinity", UUID(int=0)),
        ("infinity", UUID(int=(2**48 - 1) << 80)),
    ],
)
def test_first_id_of_handles_extreme_times(queue: Queue, time: str, first: UUID) -> None:
    assert queue.value("SELECT mailgres.first_id_of(%s)", time) == first


def test_a_locked_email_is_deleted_later(committed: Queue, connect: Connect) -> None:
    clock = Clock(committed.conn)
    held, free = put(committed, "sent", 2)
    clock.forward(91 * DAY)
    other = Queue(connect(autocommit=False))
    other.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", held)
    assert committed.value(RETAIN, 10) == 1
    assert ids(committed) == {held}
    assert free not in ids(committed)
    other.conn.commit()
    assert delete_expired(committed, 10, 2) == [1, 0]
    assert committed.value("SELECT count(*) FROM email_logs") == 0


def test_only_one_retention_run_works_at_a_time(committed: Queue, connect: Connect) -> None:
    clock = Clock(committed.conn)
    put(committed, "sent", 4)
    clock.forward(91 * DAY)
    other = Queue(connect(autocommit=False))
    assert other.value(RETAIN, 2) == 2
    assert committed.value(RETAIN, 2) == 0
    other.conn.commit()
    assert committed.value(RETAIN, 2) == 2


def test_deleted_emails_stay_in_the_counts(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    queue.attempt("sent")
    clock.forward(timedelta(days=91))
    assert queue.value(RETAIN, 10) == 1
    queue.run("SELECT mailgres.fold_rollups()")
    assert queue.value("SELECT sum(emails) FROM mailgres.rollup_by_template") == 1


def left(queue: Queue) -> dict[str, int]:
    tables = (
        "email_logs",
        "mailgres.captured",
        "mailgres.dead_letters_to_log",
        "mailgres.attachments",
    )
    return {name: queue.value(f"SELECT count(*) FROM {name}") for name in tables}


def dead_with_everything(queue: Queue) -> UUID:
    """Make a dead email with a log, an attachment and a captured message, not logged yet."""
    queue_id = queue.enqueue(attachments=Jsonb([{"filename": "a", "content": "YQ=="}]))
    kept = {"key": str(queue_id), "queue_id": str(queue_id), "message": {}}
    queue.run("SELECT mailgres.capture(%s)", Jsonb([kept]))
    queue.attempt("permanent")
    return queue_id


@pytest.mark.parametrize("way", ["DELETE FROM email_queue", "TRUNCATE email_queue CASCADE"])
def test_what_is_left_of_emails_deleted_by_hand_goes_with_retention(
    queue: Queue, clock: Clock, way: str
) -> None:
    dead_with_everything(queue)
    dead_with_everything(queue)
    queue.run("SET CONSTRAINTS ALL IMMEDIATE")  # else it could not be truncated in one transaction
    queue.run(way)
    assert left(queue)["email_logs"] == 2
    clock.forward(90 * DAY)
    delete_expired(queue, 10, 3)
    assert left(queue)["email_logs"] == 2, "its time is not over"
    clock.forward(DAY)
    delete_expired(queue, 10, 3)
    queue.run("SELECT mailgres.log_dead_letters()")
    assert set(left(queue).values()) == {0}


def test_logs_of_emails_that_are_there_stay_however_old(queue: Queue, clock: Clock) -> None:
    stay = {*put(queue, "pending", 5), *put(queue, "failed", 5)}
    gone = put(queue, "sent", 3)
    queue.run("DELETE FROM email_queue WHERE id = ANY (%s)", gone)
    clock.forward(91 * DAY)
    delete_expired(queue, 3, 10)
    logged = {row.queue_id for row in queue.rows("SELECT DISTINCT queue_id FROM email_logs")}
    assert logged == stay


def test_logs_of_deleted_emails_with_ids_of_their_own_go_with_retention(
    queue: Queue, clock: Clock
) -> None:
    """An application may give ids at random: those lie beyond every clock."""
    for _ in range(20):
        queue.run(
            "INSERT INTO email_logs (queue_id, event, tenant_id, template_type)"
            " VALUES (%s, 'sent', 'default', 'news')",
            uuid4(),
        )
    delete_expired(queue, 7, 10)
    assert queue.value("SELECT count(*) FROM email_logs") == 20
    clock.forward(91 * DAY)
    delete_expired(queue, 7, 20)
    assert queue.value("SELECT count(*) FROM email_logs") == 0


def test_a_step_looks_at_no_more_logs_than_its_limit(queue: Queue, clock: Clock) -> None:
    gone = put(queue, "sent", 12)
    queue.run("DELETE FROM email_queue WHERE id = ANY (%s)", gone)
    clock.forward(91 * DAY)
    counts = []
    for _ in range(4):
        queue.value(RETAIN, 5)
        counts.append(queue.value("SELECT count(DISTINCT queue_id) FROM email_logs"))
    assert counts == [7, 2, 0, 0]
