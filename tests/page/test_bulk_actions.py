"""Bulk actions in SQL: each email once, with any number of processes, of which some die."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from mailgres.errors import InvalidFilter
from mailgres.sqlstates import from_database
from page import bulk
from page.sending import enqueue, kill
from support.postgres import Connect
from support.queue import Clock, Queue

MIX = """
    INSERT INTO email_queue (template_type, recipient_email, subject, text, status, dead_at,
        dead_reason, error_message, sent_at, provider, uncertain_since, expires_at)
    SELECT 'inline', v.name || n || '@example.com', 'Hi', 'Hello', v.status,
        CASE WHEN v.status = 'failed' THEN mailgres.now() END,
        CASE WHEN v.status = 'failed' THEN v.reason END,
        CASE WHEN v.status IN ('failed', 'cancelled') THEN 'it failed' END,
        CASE WHEN v.status = 'sent' THEN mailgres.now() END, 'smtp',
        CASE WHEN v.reason = 'uncertain' THEN mailgres.now() - interval '2 days' END,
        CASE WHEN v.name = 'soon' THEN mailgres.now() + interval '1 hour' END
    FROM (VALUES ('dead', 'failed', 'exhausted', 5), ('twice', 'failed', 'uncertain', 3),
                 ('blocked', 'failed', 'permanent', 2), ('waits', 'pending', NULL, 4),
                 ('soon', 'pending', NULL, 2), ('blocked-too', 'pending', NULL, 1),
                 ('gone', 'cancelled', NULL, 2), ('out', 'sent', NULL, 3))
        v(name, status, reason, emails), generate_series(1, v.emails) n
"""
SUPPRESS = """
    INSERT INTO email_suppressions (recipient_email, reason)
    SELECT lower(recipient_email), 'manual' FROM email_queue WHERE recipient_email LIKE 'blocked%'
"""
PREVIEW = """
    SELECT code, message, hint, emails FROM mailgres.preview_bulk_action(%s, %s, %s)
"""
ALLOWED = {
    "retry": {None, "failed", "cancelled", "pending"},
    "cancel": {None, "failed", "pending", "sending"},
    "reschedule": {None, "pending"},
}
"""The statuses of emails for which the command line has each action."""
LATER = '{"scheduled_for": "2099-01-31T09:00Z"}'


def outcome(row: Any) -> dict[str | None, int]:
    """What an action did, as a dry run says it."""
    refused = {message: each["emails"] for message, each in row.refused.items()}
    return ({None: row.done} if row.done else {}) | refused


@pytest.mark.parametrize("status", [None, "failed", "pending", "cancelled", "sending"])
@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("retry", "{}"),
        ("retry", '{"accept_duplicates": true}'),
        ("cancel", '{"reason": "a mistake"}'),
        ("reschedule", LATER),
    ],
)
def test_a_bulk_action_does_what_its_dry_run_said(
    queue: Queue, action: str, options: str, status: str | None
) -> None:
    queue.run(MIX)
    queue.run(SUPPRESS)
    queue.claim(limit=2)
    given = "{}" if status is None else f'{{"status": ["{status}"]}}'
    if status not in ALLOWED[action]:
        with pytest.raises(psycopg.Error, match="is not for emails that are") as caught:
            queue.rows(PREVIEW, action, given, options)
        assert isinstance(from_database(caught.value), InvalidFilter)
        return
    said = queue.rows(PREVIEW, action, given, options)
    expected = {row.message: row.emails for row in said}
    assert expected, "something matches"
    before = queue.value("SELECT count(*) FROM email_logs")
    bulk.start(queue, action, given, options)
    bulk.finish(queue, 2)
    row = bulk.action(queue)
    assert outcome(row) == expected
    assert (row.state, row.chosen) == ("done", sum(expected.values()))
    assert queue.value("SELECT count(*) FROM email_logs") - before == expected.get(None, 0)
    assert queue.value("SELECT count(*) FROM mailgres.bulk_action_emails") == 0


def test_processes_that_run_a_bulk_action_at_once_do_each_email_once(
    queue: Queue, connect: Connect
) -> None:
    bulk.fill(queue, 600)
    bulk.start(queue)
    others = [Queue(connect()) for _ in range(3)]
    threads = [threading.Thread(target=bulk.finish, args=(each, 20)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row, changed = bulk.action(queue), bulk.changes(queue)
    assert (row.state, row.done, row.refused) == ("done", 600, {})
    assert (changed.changes, changed.emails) == (600, 600)


def test_a_process_that_dies_in_a_chunk_leaves_nothing_of_it(
    queue: Queue, connect: Connect
) -> None:
    bulk.fill(queue, 30)
    bulk.start(queue)
    dying = Queue(connect(autocommit=False))
    assert bulk.chunk(dying, 10) == 10
    dying.conn.close()
    assert (bulk.action(queue).done, bulk.changes(queue).changes) == (0, 0)
    bulk.finish(queue, 10)
    assert (bulk.action(queue).done, bulk.changes(queue).changes) == (30, 30)


def test_a_bulk_action_that_another_process_is_running_is_left_to_it(
    queue: Queue, connect: Connect
) -> None:
    bulk.fill(queue, 30)
    bulk.start(queue)
    busy = Queue(connect(autocommit=False))
    assert bulk.chunk(busy, 10) == 10
    assert bulk.chunk(queue, 10) == 0
    busy.conn.commit()
    assert bulk.action(queue).done == 10


def test_several_bulk_actions_advance_in_turn(queue: Queue) -> None:
    for code in ("a", "b", "c"):
        bulk.fill(queue, 2)
        queue.run("UPDATE email_queue SET error_code = %s WHERE error_code = 'busy'", code)
        bulk.start(queue, given=f'{{"error_code": ["{code}"]}}')
    for _ in range(3):
        bulk.chunk(queue, 1)
    assert [bulk.action(queue, number).done for number in (1, 2, 3)] == [1, 1, 1]


def test_a_stopped_bulk_action_changes_nothing_until_it_is_resumed(queue: Queue) -> None:
    bulk.fill(queue, 30)
    number = bulk.start(queue)
    bulk.chunk(queue, 10)
    stop = "SELECT set_config('mailgres.actor', 'ben', false), mailgres.stop_bulk_action(%s)"
    assert queue.row(stop, number)[1]
    assert not queue.row(stop, number)[1], "it is stopped"
    assert bulk.chunk(queue) == 0
    row = bulk.action(queue)
    assert (row.state, row.stopped_by, row.done) == ("stopped", "ben", 10)
    assert queue.value("SELECT mailgres.resume_bulk_action(%s)", number)
    assert not queue.value("SELECT mailgres.resume_bulk_action(%s)", number)
    bulk.finish(queue, 10)
    row = bulk.action(queue)
    assert (row.state, row.done, row.resumed_by) == ("done", 30, "ben")
    assert bulk.changes(queue).changes == 30
    assert not queue.value("SELECT mailgres.resume_bulk_action(%s)", number), "it is done"


def test_the_log_names_who_started_or_resumed_a_bulk_action(queue: Queue) -> None:
    bulk.fill(queue, 2)
    queue.run("SELECT set_config('mailgres.actor', 'ana', false)")
    number = bulk.start(queue)
    queue.run("SELECT set_config('mailgres.actor', '', false)")
    bulk.chunk(queue, 1)
    assert queue.value("SELECT role FROM email_logs").endswith(" (ana, bulk action 1)")
    queue.run("SELECT set_config('mailgres.actor', 'ben', false)")
    queue.run("SELECT mailgres.stop_bulk_action(%s)", number)
    queue.run("SELECT mailgres.resume_bulk_action(%s)", number)
    bulk.finish(queue)
    role = queue.value("SELECT role FROM email_logs ORDER BY id DESC LIMIT 1")
    assert role.endswith(" (ben, bulk action 1)")


def test_a_bulk_action_tries_a_locked_email_once_more_at_its_end(
    queue: Queue, connect: Connect
) -> None:
    bulk.fill(queue, 5)
    other = Queue(connect(autocommit=False))
    locked = other.value("SELECT id FROM email_queue ORDER BY id LIMIT 1 FOR UPDATE")
    bulk.start(queue)
    for _ in range(3):
        bulk.chunk(queue, 2)
    row = bulk.action(queue)
    assert (row.state, row.done, row.refused, row.is_last_pass) == ("running", 4, {}, True)
    other.conn.rollback()
    bulk.finish(queue)
    assert bulk.action(queue).done == 5
    assert queue.email(locked).status == "pending"


def test_an_email_that_stays_locked_is_counted_as_not_done(queue: Queue, connect: Connect) -> None:
    bulk.fill(queue, 2)
    other = Queue(connect(autocommit=False))
    other.run("SELECT id FROM email_queue ORDER BY id LIMIT 1 FOR UPDATE")
    bulk.start(queue)
    bulk.finish(queue)
    row = bulk.action(queue)
    assert outcome(row) == {None: 1, "another session is changing the email": 1}
    other.conn.rollback()


def test_emails_that_changed_since_they_were_chosen_are_left_alone(queue: Queue) -> None:
    bulk.fill(queue, 3)
    bulk.start(queue)
    first, second, _ = [row.id for row in queue.rows("SELECT id FROM email_queue ORDER BY id")]
    queue.run("SELECT retry_email(%s)", first)
    queue.run("DELETE FROM email_queue WHERE id = %s", second)
    bulk.fill(queue, 4)
    bulk.finish(queue)
    assert outcome(bulk.action(queue)) == {
        None: 1,
        "the email is pending now": 1,
        "there is no such email in the queue": 1,
    }
    assert queue.value("SELECT count(*) FROM email_queue WHERE status = 'failed'") == 4


def test_an_error_stops_a_bulk_action_and_is_shown_without_addresses(queue: Queue) -> None:
    bulk.fill(queue, 3)
    queue.run("""
        CREATE FUNCTION refuse_it() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no more for %', NEW.recipient_email; END $$;
        CREATE TRIGGER refuse_it BEFORE UPDATE ON email_queue
            FOR EACH ROW EXECUTE FUNCTION refuse_it();
    """)
    bulk.start(queue)
    assert bulk.chunk(queue) == 0
    row = bulk.action(queue)
    assert (row.state, row.done, row.stopped_by) == ("stopped", 0, None)
    assert row.error.startswith("no more for ")
    assert "@example.com" not in row.error
    queue.run("DROP TRIGGER refuse_it ON email_queue")
    queue.run("SELECT mailgres.resume_bulk_action(1)")
    bulk.finish(queue)
    assert (bulk.action(queue).done, bulk.action(queue).error) == (3, None)


def test_a_fault_that_passes_does_not_stop_a_bulk_action(queue: Queue) -> None:
    bulk.fill(queue, 3)
    bulk.start(queue)
    bulk.close_gate(queue, 0)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        bulk.chunk(queue)
    assert bulk.action(queue).state == "running"
    bulk.open_gate(queue)
    bulk.finish(queue)
    assert bulk.changes(queue).changes == 3


def test_bulk_actions_are_deleted_thirty_days_after_they_ended(queue: Queue) -> None:
    clock = Clock(queue.conn)
    bulk.fill(queue, 5)
    bulk.start(queue)
    bulk.chunk(queue, 2)
    queue.run("SELECT mailgres.stop_bulk_action(1)")
    clock.forward(timedelta(days=29))
    bulk.chunk(queue)
    assert bulk.action(queue).done == 2
    clock.forward(timedelta(days=1))
    for _ in range(2):
        bulk.chunk(queue, 2)
    assert queue.value("SELECT count(*) FROM mailgres.bulk_actions") == 0
    assert queue.value("SELECT count(*) FROM mailgres.bulk_action_emails") == 0


@pytest.mark.parametrize(
    ("action", "given", "options", "told"),
    [
        ("erase", "{}", "{}", "there is no bulk action erase"),
        ("retry", '{"status": ["sent"]}', "{}", "is not for emails that are sent"),
        ("retry", '{"status": []}', "{}", "is not for emails that are"),
        ("reschedule", '{"dead_reason": ["expired"]}', LATER, "is not for emails that are failed"),
        ("reschedule", "{}", "{}", "reschedule needs a time"),
        ("reschedule", "{}", '{"scheduled_for": "soon"}', "reschedule needs a time"),
        ("reschedule", "{}", '{"scheduled_for": "infinity"}', "reschedule needs a time"),
        ("retry", '{"colour": ["red"]}', "{}", "the filter has no key colour"),
        ("retry", '{"tenant": ["nosuch"]}', "{}", "no email matches the filter"),
    ],
)
def test_a_bulk_action_that_nobody_can_mean_is_refused_and_leaves_nothing(
    queue: Queue, action: str, given: str, options: str, told: str
) -> None:
    bulk.fill(queue, 1)
    enqueue(queue)
    with pytest.raises(psycopg.Error, match=told) as caught:
        bulk.start(queue, action, given, options)
    assert isinstance(from_database(caught.value), InvalidFilter)
    assert queue.value("SELECT count(*) FROM mailgres.bulk_actions") == 0


def test_a_bulk_action_is_for_the_statuses_of_the_command_line(queue: Queue) -> None:
    kill(queue, enqueue(queue))
    waiting = enqueue(queue)
    bulk.start(queue, "cancel")
    bulk.finish(queue)
    assert (bulk.action(queue).chosen, queue.email(waiting).status) == (1, "cancelled")
