"""Many emails in one call: as if one by one, but what stands in the way is reported."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from support.postgres import Connect
from support.queue import HOLD, WITH_KEYS, WITHOUT_KEYS, Clock, Queue

RETRY = "SELECT * FROM mailgres.retry_emails(%s, %s, %s::text[])"
CANCEL = "SELECT * FROM mailgres.cancel_emails(%s, 'no longer true', %s::text[])"
RESCHEDULE = "SELECT * FROM mailgres.reschedule_emails(%s, mailgres.now() + interval '1 hour')"
PURGE = "SELECT * FROM mailgres.purge_dead_letters(%s, %s)"
WINDOW = timedelta(hours=23)


def reported(queue: Queue, statement: str, *parameters: object) -> dict[UUID, str | None]:
    return {row.id: row.code for row in queue.rows(statement, *parameters)}


def retry(queue: Queue, *ids: UUID, accept: bool = False) -> dict[UUID, str | None]:
    return reported(queue, RETRY, list(ids), accept, None)


def dead(queue: Queue, outcome: str = "permanent") -> UUID:
    queue_id = queue.enqueue(HOLD, max_retries=0)
    queue.attempt(outcome, message="no")
    return queue_id


def every_kind(queue: Queue) -> dict[str, UUID]:
    """One email in each state."""
    queue.use_provider(WITHOUT_KEYS)
    found = {"dead": dead(queue), "uncertain": dead(queue, "ambiguous")}
    found["sent"] = queue.enqueue()
    queue.attempt("sent")
    found["sending"] = queue.enqueue()
    queue.start_attempts([queue.claim_one()])
    found["pending"] = queue.enqueue()
    found["unknown"] = uuid4()
    return found


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("accept", [False, True])
def test_retrying_many_reports_why_each_was_skipped(queue: Queue, accept: bool) -> None:  # noqa: FBT001
    kinds = every_kind(queue)
    said = retry(queue, *kinds.values(), accept=accept)
    assert {kind: said[key] for kind, key in kinds.items()} == {
        "dead": None,
        "uncertain": None if accept else "MG024",
        "sent": "MG021",
        "sending": "MG022",
        "pending": None,
        "unknown": "MG020",
    }
    email = queue.email(kinds["dead"])
    assert (email.status, email.ready, email.retries, email.generation) == ("pending", True, 0, 1)
    assert queue.email(kinds["pending"]).generation == 0
    assert queue.email(kinds["uncertain"]).status == ("pending" if accept else "failed")
    assert queue.events(kinds["dead"])[-1] == "reopened"


@pytest.mark.usefixtures("clock")
def test_cancelling_many_reports_why_each_was_skipped(queue: Queue) -> None:
    kinds = every_kind(queue)
    said = reported(queue, CANCEL, list(kinds.values()), None)
    assert {kind: said[key] for kind, key in kinds.items()} == {
        "dead": None,
        "uncertain": "MG023",
        "sent": "MG021",
        "sending": "MG022",
        "pending": None,
        "unknown": "MG020",
    }
    assert queue.email(kinds["pending"]).error_message == "no longer true"
    assert reported(queue, CANCEL, [kinds["pending"]], None) == {kinds["pending"]: "MG021"}


def test_rescheduling_many_reports_why_each_was_skipped(queue: Queue, clock: Clock) -> None:
    kinds = every_kind(queue)
    kinds["expires"] = queue.enqueue(expires_at=clock.now + timedelta(minutes=5))
    said = reported(queue, RESCHEDULE, list(kinds.values()))
    assert {kind: said[key] for kind, key in kinds.items()} == {
        "dead": "MG021",
        "uncertain": "MG021",
        "sent": "MG021",
        "sending": "MG022",
        "pending": None,
        "unknown": "MG020",
        "expires": "MG008",
    }
    assert queue.email(kinds["pending"]).next_retry_at == clock.now + timedelta(hours=1)


@pytest.mark.usefixtures("clock")
def test_bulk_actions_skip_emails_whose_status_has_changed(queue: Queue) -> None:
    first, second = dead(queue), dead(queue)
    queue.run("SELECT retry_email(%s)", first)
    said = reported(queue, RETRY, [first, second], None, ["failed"])
    assert said == {first: "MG026", second: None}
    assert reported(queue, CANCEL, [first], ["failed"]) == {first: "MG026"}
    assert queue.email(first).status == "pending"


def test_retrying_many_keeps_a_key_that_still_protects(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue(max_retries=0)
    queue.attempt("ambiguous")
    queue.run("UPDATE email_queue SET status = 'failed', dead_reason = 'uncertain'")
    assert retry(queue, queue_id) == {queue_id: None}
    email = queue.email(queue_id)
    assert (email.generation, email.uncertain_since is not None) == (0, True)
    queue.run("UPDATE email_queue SET status = 'failed', dead_reason = 'uncertain'")
    clock.forward(WINDOW + timedelta(seconds=1))
    assert retry(queue, queue_id) == {queue_id: "MG024"}
    assert retry(queue, queue_id, accept=True) == {queue_id: None}
    assert queue.email(queue_id).generation == 1


def batch_of(queue: Queue, size: int) -> list[UUID]:
    """A batch that may have arrived, and is dead."""
    queue.run("UPDATE mailgres.providers SET batch_size = 100 WHERE name = %s", WITH_KEYS)
    ids = sorted(queue.enqueue(max_retries=0) for _ in range(size))
    queue.run(
        "UPDATE email_queue SET status = 'failed', dead_reason = 'uncertain', error_message = '?',"
        " provider = %s, batch_id = gen_random_uuid(), batch_size = %s,"
        " uncertain_since = mailgres.now(), first_attempt_at = mailgres.now() WHERE id = ANY (%s)",
        *(WITH_KEYS, size, ids),
    )
    queue.run("UPDATE email_queue SET batch_id = %s WHERE id = ANY (%s)", uuid4(), ids)
    return ids


@pytest.mark.usefixtures("clock")
def test_a_retried_batch_is_sent_again_whole(queue: Queue) -> None:
    queue.use_provider(WITH_KEYS)
    ids = batch_of(queue, 3)
    assert retry(queue, ids[0]) == dict.fromkeys(ids), "the others are reported, too"
    assert {queue.email(key).status for key in ids} == {"pending"}
    assert {queue.email(key).generation for key in ids} == {0}


@pytest.mark.usefixtures("clock")
def test_of_a_batch_that_is_no_longer_whole_each_needs_consent(queue: Queue) -> None:
    queue.use_provider(WITH_KEYS)
    first, *others = batch_of(queue, 3)
    queue.run("SELECT record_email_event(NULL, 'delivered', p_queue_id => %s)", first)
    assert retry(queue, *others) == dict.fromkeys(others, "MG024")
    assert retry(queue, *others, accept=True) == dict.fromkeys(others)
    assert {(queue.email(key).generation, queue.email(key).batch_id) for key in others} == {
        (1, None)
    }


def test_bulk_actions_skip_locked_rows(committed: Queue, connect: Connect) -> None:
    """Rows that another session holds are reported; the rest is done."""
    held, free = dead(committed), dead(committed)
    other = connect(autocommit=False)
    other.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", [held])
    committed.run("SET lock_timeout = '1ms'")
    assert retry(committed, held, free) == {held: "MG026", free: None}
    assert reported(committed, CANCEL, [held], None) == {held: "MG026"}
    assert reported(committed, RESCHEDULE, [held]) == {held: "MG026"}
    dead_at = committed.email(held).dead_at
    assert reported(committed, PURGE, [held], [dead_at]) == {held: "MG026"}
    other.rollback()
    assert retry(committed, held) == {held: None}


def test_nobody_is_waited_for_who_holds_the_rest_of_a_batch(
    committed: Queue, connect: Connect
) -> None:
    committed.use_provider(WITH_KEYS)
    first, second, held = batch_of(committed, 3)
    free = dead_by_hand(committed)
    other = connect(autocommit=False)
    other.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", [held])
    committed.run("SET lock_timeout = '1ms'")
    said = retry(committed, first, second, free)
    assert said == {first: "MG026", second: "MG026", free: None}
    assert committed.email(first).status == "failed"
    other.rollback()
    batch = committed.email(first).batch_id
    other.execute("SELECT mailgres.try_lock_batch(%s)", [batch])
    assert retry(committed, first) == {first: "MG026"}, "nor for who has the batch"
    other.rollback()
    assert retry(committed, first) == dict.fromkeys((first, second, held))


def dead_by_hand(queue: Queue) -> UUID:
    queue_id = queue.enqueue(HOLD)
    queue.run(
        "UPDATE email_queue SET status = 'failed', dead_at = mailgres.now(),"
        " dead_reason = 'permanent', error_message = 'no' WHERE id = %s",
        queue_id,
    )
    return queue_id


@pytest.mark.usefixtures("clock")
def test_purging_many_spares_letters_with_attachments(queue: Queue) -> None:
    with_file, plain = dead_by_hand(queue), dead_by_hand(queue)
    queue.run("UPDATE email_queue SET has_attachments = true WHERE id = %s", with_file)
    ids = [with_file, plain]
    died = [queue.email(key).dead_at for key in ids]
    assert reported(queue, PURGE, ids, died) == {with_file: "MG027", plain: None}
    assert queue.email(with_file).status == "failed"
    too = "SELECT * FROM mailgres.purge_dead_letters(%s, %s, true)"
    assert reported(queue, too, ids, died) == {with_file: None, plain: "MG020"}


ARCHIVE = """
    INSERT INTO mailgres.dead_letters (queue_id, tenant_id, template_type, dead_reason, error_code,
                                       dead_at, expires_at, email, log)
    SELECT gen_random_uuid(), 'default', 'x', 'permanent', '550', now() - n * interval '1 minute',
           now() + interval '90 days', jsonb_build_object('payload', repeat('x', 500)), '[]'
    FROM generate_series(1, 20000) n
"""
READ = """
    SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
    FROM pg_stat_xact_user_tables WHERE relid = 'mailgres.dead_letters'::regclass
"""


@pytest.mark.parametrize("code", [None, "550"])
def test_the_newest_dead_letters_are_found_without_reading_the_archive(
    queue: Queue, code: str | None
) -> None:
    find = "SELECT id FROM mailgres.find_dead_letters(p_code => %s, p_limit => 50)"
    queue.run(ARCHIVE)
    queue.run("ANALYZE mailgres.dead_letters")
    with queue.conn.transaction():
        before = queue.value(READ)
        found = [row.id for row in queue.rows(find, code)]
        # Planning looks at both ends of the index.
        assert queue.value(READ) - before < 60
    newest = "SELECT queue_id FROM mailgres.dead_letters ORDER BY dead_at DESC LIMIT 50"
    assert found == [row.queue_id for row in queue.rows(newest)]


@pytest.mark.parametrize("archived", [False, True])
def test_purging_skips_letters_that_died_again(queue: Queue, clock: Clock, archived: bool) -> None:  # noqa: FBT001
    first, again, alive = dead(queue), dead(queue), queue.enqueue()
    died = {key: queue.email(key).dead_at for key in (first, again)}
    clock.forward(timedelta(minutes=1))
    queue.run("UPDATE email_queue SET dead_at = mailgres.now() WHERE id = %s", again)
    if archived:
        clock.forward(timedelta(days=8))
        queue.run("SELECT mailgres.archive_dead_letters()")
    unknown = uuid4()
    ids = [first, again, alive, unknown]
    said = reported(queue, PURGE, ids, [*died.values(), clock.now, clock.now])
    assert said == {first: None, again: "MG026", alive: "MG026", unknown: "MG020"}
    left = queue.rows("SELECT id FROM email_dead_letters")
    assert [row.id for row in left] == [again]
    assert queue.email(alive).status == "pending"
    logs = "SELECT count(*) FROM email_logs WHERE queue_id = %s"
    assert queue.value(logs, first) == 0


@pytest.mark.usefixtures("clock")
def test_retries_of_suppressed_addresses_are_reported_and_the_others_are_made(queue: Queue) -> None:
    queue.enqueue(HOLD, "bob@example.com", max_retries=0)
    bob = queue.attempt("permanent", message="no").id
    ana = dead(queue)
    queue.suppress("bob@example.com")
    assert retry(queue, ana, bob) == {ana: None, bob: "MG028"}
    assert [queue.email(key).status for key in (ana, bob)] == ["pending", "failed"]
