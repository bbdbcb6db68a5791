"""The audit log: every change of status and every attempt, never changed, without addresses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from support.queue import WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

MINUTE = timedelta(minutes=1)
Step = Callable[[Queue, UUID], object]


def hand(statement: str) -> Step:
    return lambda queue, queue_id: queue.run(f"{statement} WHERE id = '{queue_id}'")


def call(function: str) -> Step:
    return lambda queue, queue_id: queue.run(f"SELECT {function.format(repr(str(queue_id)))}")


def attempt(outcome: str) -> Step:
    return lambda queue, _: queue.attempt(outcome)


def claim_and(statement: str) -> Step:
    def step(queue: Queue, queue_id: UUID) -> None:
        token = queue.claim_one().lease_token
        queue.run(statement.format(token=f"'{token}'", ids=f"ARRAY['{queue_id}'::uuid]"))

    return step


STEPS: dict[str, tuple[Step, list[tuple[str, str, str]]]] = {
    "claimed": (lambda queue, _: queue.claim_one(), []),
    "sent": (attempt("sent"), [("sent", "sending", "sent")]),
    "transient": (attempt("transient"), [("retry", "sending", "pending")]),
    "ambiguous": (attempt("ambiguous"), [("retry", "sending", "pending")]),
    "rate": (attempt("rate"), [("deferred", "sending", "pending")]),
    "quota": (attempt("quota"), [("deferred", "sending", "pending")]),
    "config": (attempt("config"), [("deferred", "sending", "pending")]),
    "permanent": (attempt("permanent"), [("dead", "sending", "failed")]),
    "given back": (
        claim_and("SELECT mailgres.give_back({token}, {ids})"),
        [("given_back", "sending", "pending")],
    ),
    "extended": (claim_and("SELECT mailgres.extend({token}, {ids})"), []),
    "cancelled": (call("cancel_email({})"), [("cancelled", "pending", "cancelled")]),
    "rescheduled": (
        call("reschedule_email({}, mailgres.now() + interval '1 day')"),
        [("rescheduled", "pending", "pending")],
    ),
    "marked sent": (call("mark_email_sent({}, 're_1')"), [("sent", "pending", "sent")]),
    "marked failed": (call("mark_email_failed({}, 'no')"), [("retry", "pending", "pending")]),
    "sent by hand": (
        hand("UPDATE email_queue SET status = 'sent'"),
        [("sent", "pending", "sent")],
    ),
    "failed by hand": (
        hand("UPDATE email_queue SET status = 'failed'"),
        [("dead", "pending", "failed")],
    ),
    "put off by hand": (
        hand("UPDATE email_queue SET next_retry_at = mailgres.now() + interval '1 day'"),
        [("rescheduled", "pending", "pending")],
    ),
    "changed otherwise by hand": (hand("UPDATE email_queue SET priority = 1"), []),
}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("name", STEPS)
def test_each_step_of_an_email_writes_one_log_row(queue: Queue, name: str) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    step, expected = STEPS[name]
    step(queue, queue_id)
    entries = queue.log(queue_id)
    assert [(entry.event, entry.from_status, entry.to_status) for entry in entries] == expected


def test_the_log_has_every_step_of_an_email_in_order(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(max_retries=1)
    queue.attempt("transient")
    clock.forward(MINUTE)
    queue.claim_one("dead")
    clock.forward(MINUTE)
    queue.reap()
    queue.attempt("permanent")
    queue.run("SELECT retry_email(%s)", queue_id)
    queue.attempt("sent")
    assert queue.events(queue_id) == ["retry", "lost", "dead", "reopened", "sent"]
    assert [entry.attempt for entry in queue.log(queue_id)] == [1, 2, 2, 2, 1]


def test_a_failed_attempt_is_logged_with_worker_duration_and_error(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue(tenant_id="shop")
    claimed_at = clock.now
    claimed = queue.claim_one("worker-7")
    clock.forward(timedelta(seconds=3))
    reported = {"code": "451", "message": "busy", "detail": "451 busy, bob@example.com"}
    queue.finish(report(claimed, "transient", duration_ms=2900, **reported))
    (entry,) = queue.log(queue_id)
    assert (entry.at, entry.claimed_at, entry.worker) == (clock.now, claimed_at, "worker-7")
    assert (entry.tenant_id, entry.template_type, entry.attempt) == ("shop", "welcome_user", 1)
    assert (entry.provider, entry.duration_ms) == (WITHOUT_KEYS, 2900)
    assert (entry.error_class, entry.error_code) == ("transient", "451")
    assert (entry.error_message, entry.error_detail) == ("busy", reported["detail"])
    assert (entry.next_retry_at, entry.dead_reason) == (clock.now + MINUTE, None)
    assert entry.role == queue.value("SELECT session_user::text")


def test_a_sent_email_is_logged_with_the_id_of_the_provider(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("sent", provider_message_id="re_1", duration_ms=80)
    (entry,) = queue.log(queue_id)
    assert (entry.provider, entry.provider_message_id) == (WITH_KEYS, "re_1")
    assert (entry.duration_ms, entry.at) == (80, clock.now)
    assert (entry.error_class, entry.error_code, entry.error_message) == (None, None, None)
    assert (entry.next_retry_at, entry.dead_reason) == (None, None)


def test_a_dead_email_is_logged_with_its_reason(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.attempt("permanent", code="422")
    (entry,) = queue.log(queue_id)
    assert (entry.dead_reason, entry.error_code, entry.next_retry_at) == ("permanent", "422", None)


@pytest.mark.usefixtures("clock")
def test_outcomes_in_one_call_are_logged_one_row_each(queue: Queue) -> None:
    ids = [queue.enqueue() for _ in range(5)]
    claimed = queue.claim()
    outcomes = ["sent", "transient", "rate", "permanent", "sent"]
    queue.finish(*map(report, claimed, outcomes))
    names = {"sent": "sent", "transient": "retry", "rate": "deferred", "permanent": "dead"}
    logged = {queue_id: queue.events(queue_id) for queue_id in ids}
    reported = zip(claimed, outcomes, strict=True)
    assert logged == {email.id: [names[outcome]] for email, outcome in reported}


def test_a_late_report_is_not_a_loss(queue: Queue, clock: Clock) -> None:
    """The lease has ended, but nobody took it: what the worker says counts."""
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    clock.forward(2 * MINUTE)
    (done,) = queue.finish(report(claimed, "rate"))
    assert done.refused is None
    assert queue.events(queue_id) == ["deferred"]


def test_an_attempt_that_was_not_made_has_no_fault(queue: Queue, clock: Clock) -> None:
    """The fault of an earlier attempt must not be counted again."""
    queue_id = queue.enqueue()
    queue.attempt("transient", code="E1", duration_ms=50)
    clock.forward(MINUTE)
    STEPS["given back"][0](queue, queue_id)
    queue.claim_one("dead")
    clock.forward(MINUTE)
    queue.reap()
    _, *later = queue.log(queue_id)
    assert [entry.event for entry in later] == ["given_back", "lost"]
    faults: list[Any] = [(entry.error_class, entry.error_code) for entry in later]
    assert faults == [(None, None)] * 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE email_logs SET event = 'sent'",
        "UPDATE email_logs SET event = 'sent' WHERE false",
        "TRUNCATE email_logs",
        "UPDATE mailgres.template_versions SET subject = 'x'",
        "DELETE FROM mailgres.template_versions",
        "TRUNCATE mailgres.template_versions",
        "TRUNCATE email_templates CASCADE",
    ],
)
def test_log_rows_cannot_be_changed(queue: Queue, statement: str) -> None:
    queue.enqueue()
    queue.attempt("sent")
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.run(statement)
    assert error.value.sqlstate == "MG040"
    assert error.value.diag.message_hint


def test_a_template_gets_a_new_version(queue: Queue) -> None:
    """An email keeps the template version of its first attempt."""
    before, after = queue.enqueue(), queue.enqueue()
    assert queue.claim("worker-1", 1)[0].template_version == 1
    queue.run(
        "INSERT INTO mailgres.template_versions (template_type, version, subject, text)"
        " VALUES ('welcome_user', 2, 'Hello', 'Hello')"
    )
    queue.run("UPDATE email_templates SET active_version = 2 WHERE template_type = 'welcome_user'")
    queue.run("UPDATE email_queue SET status = 'pending' WHERE id = %s", before)
    assert {email.id: email.template_version for email in queue.claim()} == {before: 1, after: 2}


TEXTS = {
    "plain": ("no such user bob@example.com", "no such user <address>"),
    "brackets": ("<bob@example.com>: unknown", "<<address>>: unknown"),
    "two": ("a@example.com,b@example.com", "<address>,<address>"),
    "quoted": ('"bob@example.com" said', '"<address>" said'),
    "subdomain": ("bob+tag@mail.example.co.uk.", "<address>"),
    "not ascii": ("jürgen@bücher.example fehlt", "<address> fehlt"),
    "mailto": ("mailto:bob@example.com", "mailto:<address>"),
}


@pytest.mark.parametrize(("said", "stored"), TEXTS.values(), ids=TEXTS.keys())
def test_addresses_are_masked_in_what_analysts_read(queue: Queue, said: str, stored: str) -> None:
    queue_id = queue.enqueue()
    queue.run("SELECT mark_email_failed(%s, %s)", queue_id, said)
    for row in (queue.email(queue_id), *queue.log(queue_id)):
        assert (row.error_message, row.error_detail) == (stored, said)


def test_addresses_quoted_by_a_worker_are_masked(queue: Queue) -> None:
    queue_id = queue.enqueue()
    said = "no such user bob@example.com"
    queue.attempt("permanent", message=said, detail=said)
    for row in (queue.email(queue_id), *queue.log(queue_id)):
        assert (row.error_message, row.error_detail) == ("no such user <address>", said)
