"""What a processor without a token gets is its own for 15 minutes, and nobody else's."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from support.concurrency import at_once
from support.postgres import Connect
from support.queue import WITH_KEYS, Clock, Queue, report

MINUTE = timedelta(minutes=1)


def fill(queue: Queue, emails: int) -> set[UUID]:
    return {queue.enqueue(tenant_id=f"tenant-{number % 7}") for number in range(emails)}


def drain_rpc(queue: Queue) -> list[UUID]:
    """Claim as an old processor until nothing is left."""
    ids: list[UUID] = []
    while emails := queue.claim_rpc(5):
        ids += [email.queue_id for email in emails]
    return ids


def drain_worker(queue: Queue) -> list[UUID]:
    """Claim as a worker until nothing is left."""
    ids: list[UUID] = []
    while emails := queue.claim("worker", 5):
        ids += [email.id for email in emails]
    return ids


def test_a_processor_claims_with_a_lease_without_a_token(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue()
    queue.claim_rpc()
    email = queue.email(queue_id)
    assert (email.status, email.lease_is_tokenless) == ("sending", True)
    assert (email.leased_at, email.lease_until) == (clock.now, clock.now + 15 * MINUTE)
    assert (email.last_attempt_at, email.attempt_started_at, email.provider) == (
        clock.now,
        None,
        None,
    )


def test_an_email_of_a_silent_processor_is_pending_after_15_minutes(
    queue: Queue, clock: Clock
) -> None:
    queue_id = queue.enqueue()
    queue.claim_rpc()
    clock.forward(15 * MINUTE - timedelta(seconds=1))
    assert queue.reap() == 0
    assert queue.claim_rpc() == queue.claim() == []
    clock.forward(timedelta(seconds=1))
    assert queue.reap() == 1
    assert [email.queue_id for email in queue.claim_rpc()] == [queue_id]


def test_two_overlapping_processors_claim_different_emails(
    committed: Queue, connect: Connect
) -> None:
    """The second starts while the first has not committed: it gets others, without waiting."""
    ids = fill(committed, 12)
    first, second = Queue(connect()), Queue(connect())
    with first.conn.transaction():
        some = {email.queue_id for email in first.claim_rpc(6)}
        others = {email.queue_id for email in second.claim_rpc(6)}
    assert some.isdisjoint(others)
    assert some | others == ids


def test_a_processor_and_a_worker_overlap(committed: Queue, connect: Connect) -> None:
    ids = fill(committed, 12)
    processor, worker = Queue(connect()), Queue(connect())
    with processor.conn.transaction():
        some = {email.queue_id for email in processor.claim_rpc(6)}
        others = {email.id for email in worker.claim(limit=6)}
    assert some.isdisjoint(others)
    assert some | others == ids


@pytest.mark.parametrize("workers", [0, 3])
def test_processors_and_workers_at_once_claim_each_email_once(
    committed: Queue, connect: Connect, workers: int
) -> None:
    ids = fill(committed, 90)
    processors = [Queue(connect()) for _ in range(3)]
    others = [Queue(connect()) for _ in range(workers)]
    calls = [partial(drain_rpc, queue) for queue in processors]
    claims = at_once(calls + [partial(drain_worker, queue) for queue in others])
    claimed = [queue_id for claim in claims for queue_id in claim]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == ids


def test_processor_claims_both_names_claim(committed: Queue, connect: Connect) -> None:
    ids = fill(committed, 10)
    first, second = Queue(connect()), Queue(connect())
    with first.conn.transaction():
        some = {row.queue_id for row in first.rows("SELECT * FROM get_pending_emails_for_retry(5)")}
        others = {email.queue_id for email in second.claim_rpc(10)}
    assert some.isdisjoint(others)
    assert some | others == ids


@pytest.mark.usefixtures("clock")
def test_processors_get_only_plain_emails_without_uncertain_attempts(queue: Queue) -> None:
    """It can send neither inline content nor the keys of uncertain attempts."""
    queue.use_provider(WITH_KEYS)
    queue.enqueue("receipt", subject="Receipt", text="Thank you")
    uncertain = queue.enqueue()
    tried = [email for email in queue.claim() if email.id == uncertain]
    plain = queue.enqueue()
    queue.finish(report(tried[0], "ambiguous"))
    queue.run("UPDATE email_queue SET status = 'pending' WHERE status = 'sending'")
    queue.run("UPDATE email_queue SET next_retry_at = NULL")
    assert [email.queue_id for email in queue.claim_rpc()] == [plain]


@pytest.mark.usefixtures("clock")
def test_the_state_of_our_providers_does_not_stop_a_processor(queue: Queue) -> None:
    """Unusable providers of ours do not matter to it; a paused tenant does."""
    queue.run("UPDATE mailgres.providers SET circuit = 'open'")
    queue.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('paused', now())")
    queue_id = queue.enqueue()
    queue.enqueue(tenant_id="paused")
    assert queue.claim() == []
    assert [email.queue_id for email in queue.claim_rpc()] == [queue_id]


COLUMNS = ["queue_id", "user_id", "template_type", "recipient_email", "payload", "retries"]


@pytest.mark.parametrize(
    "name", ["process_pending_emails_for_retry", "get_pending_emails_for_retry"]
)
def test_the_claims_of_processors_have_the_documented_columns(queue: Queue, name: str) -> None:
    queue.enqueue()
    cursor = queue.conn.execute(f"SELECT * FROM {name}(10)")
    described = cursor.description or []
    assert [column.name for column in described] == COLUMNS
    names = [queue.conn.adapters.types[column.type_code].name for column in described]
    assert names == ["uuid", "uuid", "text", "text", "jsonb", "int4"]


# As PostgREST calls them: every argument by its name.
NAMED = {
    "enqueue_email": (
        "SELECT * FROM enqueue_email(p_user_id => '8d1b1c5e-5f0a-4f2e-9f0e-0a4b6c1d2e3f',"
        " p_template_type => 'welcome_user', p_recipient_email => 'ana@example.com',"
        " p_payload => '{}')"
    ),
    "process_pending_emails_for_retry": (
        "SELECT * FROM process_pending_emails_for_retry(batch_size => 5)"
    ),
    "get_pending_emails_for_retry": "SELECT * FROM get_pending_emails_for_retry(batch_size => 5)",
    "mark_email_sent": (
        "SELECT mark_email_sent(p_queue_id => id, p_resend_id => 're') FROM email_queue"
    ),
    "mark_email_sent without an id": "SELECT mark_email_sent(p_queue_id => id) FROM email_queue",
    "mark_email_failed": (
        "SELECT mark_email_failed(p_queue_id => id, p_error_message => 'no') FROM email_queue"
    ),
    "calculate_next_retry_time": "SELECT calculate_next_retry_time(retry_count => 1)",
    "defaults": "SELECT * FROM process_pending_emails_for_retry()",
}


@pytest.mark.parametrize("statement", NAMED.values(), ids=NAMED.keys())
def test_processors_can_use_the_argument_names_of_the_contract(
    queue: Queue, statement: str
) -> None:
    queue.enqueue()
    assert queue.value(statement) if "pending" not in statement else queue.row(statement)
