"""What a person does by hand: cancel, retry, reschedule."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, is_leased

HOUR = timedelta(hours=1)

CANCEL = "SELECT cancel_email(%s)"
RETRY = "SELECT retry_email(%s)"
RETRY_ANYWAY = "SELECT retry_email(%s, p_accept_duplicate => true)"
RESCHEDULE = "SELECT reschedule_email(%s, mailgres.now() + interval '1 hour')"


def refusal(queue: Queue, statement: str, *parameters: object) -> str | None:
    """The SQLSTATE with which a call is refused; it says what to do and changes nothing."""
    before = queue.rows("SELECT * FROM email_queue")
    with pytest.raises(psycopg.Error) as error, queue.conn.transaction():
        queue.run(statement, *parameters)
    assert error.value.diag.message_hint
    assert queue.rows("SELECT * FROM email_queue") == before
    return error.value.sqlstate


def dead(queue: Queue, outcome: str = "permanent", template: str = HOLD) -> UUID:
    queue_id = queue.enqueue(template, max_retries=0)
    assert queue.attempt(outcome, message="no").status == "failed"
    return queue_id


# --- cancel


@pytest.mark.parametrize("later", [timedelta(0), HOUR])
def test_cancel_email_cancels_a_pending_email(queue: Queue, clock: Clock, later: timedelta) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + later)
    assert queue.value(CANCEL, queue_id) is True
    email = queue.email(queue_id)
    assert (email.status, email.error_message) == ("cancelled", "cancelled by hand")
    clock.forward(HOUR)
    assert queue.claim() == []
    assert queue.value(CANCEL, queue_id) is False


@pytest.mark.usefixtures("clock")
def test_cancel_email_stores_the_reason_without_addresses(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run("SELECT cancel_email(%s, 'asked by bob@example.com')", queue_id)
    assert queue.email(queue_id).error_message == "asked by <address>"


@pytest.mark.usefixtures("clock")
def test_cancel_email_cancels_a_dead_email(queue: Queue) -> None:
    queue_id = dead(queue)
    assert queue.value(CANCEL, queue_id) is True
    email = queue.email(queue_id)
    assert (email.status, email.dead_at, email.dead_reason) == ("cancelled", None, None)


@pytest.mark.usefixtures("clock")
def test_a_claimed_email_can_be_cancelled_before_its_call(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    queue.claim_one()
    assert queue.value(CANCEL, queue_id) is True
    assert not is_leased(queue.email(queue_id))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_an_email_cannot_be_cancelled_during_its_call(queue: Queue, provider: str) -> None:
    queue.use_provider(provider)
    queue_id = queue.enqueue()
    queue.start_attempts([queue.claim_one()])
    assert refusal(queue, CANCEL, queue_id) == "MG022"


@pytest.mark.usefixtures("clock")
def test_an_email_of_a_processor_cannot_be_cancelled(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.claim_rpc()
    assert refusal(queue, CANCEL, queue_id) == "MG022"


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("provider", [WITH_KEYS, WITHOUT_KEYS])
def test_an_uncertain_email_cannot_be_cancelled(queue: Queue, provider: str) -> None:
    queue.use_provider(provider)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    assert refusal(queue, CANCEL, queue_id) == "MG023"


# --- retry


@pytest.mark.parametrize(
    ("outcome", "template_type"), [("permanent", HOLD), ("transient", HOLD), ("transient", RESEND)]
)
def test_a_dead_email_can_be_retried(
    queue: Queue, clock: Clock, outcome: str, template_type: str
) -> None:
    queue_id = dead(queue, outcome, template_type)
    clock.forward(HOUR)
    assert queue.value(RETRY, queue_id) is True
    email = queue.email(queue_id)
    assert (email.status, email.ready, email.next_retry_at) == ("pending", True, clock.now)
    assert (email.retries, email.generation, email.lease_losses) == (0, 1, 0)
    assert (email.dead_at, email.dead_reason, email.first_attempt_at) == (None, None, None)
    assert queue.claim_one().first_attempt_at == clock.now


def test_a_retry_by_hand_gives_all_retries_again(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(max_retries=1)
    for generation in (1, 2):
        queue.attempt("transient")
        clock.forward(HOUR)
        assert queue.attempt("transient").status == "failed"
        queue.run(RETRY, queue_id)
        email = queue.email(queue_id)
        assert (email.generation, email.retries) == (generation, 0)


def test_a_retry_of_an_expired_email_removes_its_expiry(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + HOUR)
    clock.forward(HOUR)
    queue.run("SELECT mailgres.expire()")
    queue.run(RETRY, queue_id)
    assert queue.claim_one().id == queue_id


@pytest.mark.usefixtures("clock")
def test_a_cancelled_email_can_be_retried(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run(CANCEL, queue_id)
    assert queue.value(RETRY, queue_id) is True
    assert queue.claim_one().id == queue_id


def test_retry_of_a_waiting_email_is_now(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + HOUR)
    assert queue.value(RETRY, queue_id) is True
    claimed = queue.claim_one()
    assert (claimed.id, claimed.generation) == (queue_id, 0)


def test_retrying_a_crashed_email_resets_its_count_of_lost_leases(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    for _ in range(5):
        queue.claim_one()
        clock.forward(timedelta(minutes=1))
        queue.reap()
    assert queue.email(queue_id).dead_reason == "crashed"
    queue.run(RETRY, queue_id)
    assert queue.email(queue_id).lease_losses == 0


def test_retry_of_an_uncertain_email_keeps_the_key(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = dead(queue, "ambiguous")
    since = clock.now
    clock.forward(23 * HOUR - timedelta(seconds=1))
    assert queue.value(RETRY, queue_id) is True
    email = queue.claim_one()
    assert (email.generation, email.provider) == (0, WITH_KEYS)
    assert (email.uncertain_since, email.first_attempt_at) == (since, since)


def test_retrying_an_uncertain_dead_letter_after_its_key_window_needs_consent(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = dead(queue, "ambiguous")
    clock.forward(23 * HOUR)
    assert refusal(queue, RETRY, queue_id) == "MG024"
    assert refusal(queue, "SELECT retry_email(%s, NULL)", queue_id) == "MG024"
    assert queue.value(RETRY_ANYWAY, queue_id) is True
    email = queue.claim_one()
    assert (email.generation, email.uncertain_since) == (1, None)
    assert email.first_attempt_at == clock.now


def test_retrying_a_waiting_uncertain_email_after_its_key_window_needs_consent(
    queue: Queue, clock: Clock
) -> None:
    """A retry that accepts a duplicate gets a new key, with a window of its own."""
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    clock.forward(23 * HOUR)
    assert refusal(queue, RETRY, queue_id) == "MG024"
    assert queue.value(RETRY_ANYWAY, queue_id) is True
    email = queue.claim_one()
    assert (email.generation, email.first_attempt_at) == (1, clock.now)


@pytest.mark.usefixtures("clock")
def test_retrying_an_uncertain_email_without_keys_needs_consent(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = dead(queue, "ambiguous")
    assert refusal(queue, RETRY, queue_id) == "MG024"
    assert queue.value(RETRY_ANYWAY, queue_id) is True
    assert queue.claim_one().generation == 1


# --- reschedule


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_reschedule_email_changes_the_time(queue: Queue, clock: Clock, hours: int) -> None:
    queue_id = queue.enqueue(scheduled_for=clock.now + 5 * HOUR)
    then = clock.now + hours * HOUR
    assert queue.value("SELECT reschedule_email(%s, %s)", queue_id, then) is True
    email = queue.email(queue_id)
    assert (email.scheduled_for, email.next_retry_at) == (then, max(then, clock.now))
    assert len(queue.claim()) == (hours <= 0)
    clock.forward(HOUR)
    assert queue.email(queue_id).status == "sending" or queue.claim_one().id == queue_id


@pytest.mark.usefixtures("clock")
def test_a_ready_email_can_be_rescheduled_to_later(queue: Queue) -> None:
    queue_id = queue.enqueue()
    queue.run(RESCHEDULE, queue_id)
    assert queue.claim() == []
    assert queue.events(queue_id) == ["rescheduled"]


def test_reschedule_email_refuses_a_time_after_the_expiry(queue: Queue, clock: Clock) -> None:
    queue_id = queue.enqueue(expires_at=clock.now + HOUR)
    assert refusal(queue, RESCHEDULE, queue_id) == "MG008"
    assert refusal(queue, "SELECT reschedule_email(%s, NULL)", queue_id) == "MG008"


# --- refusals that depend on the status alone

REFUSALS = [
    (CANCEL, "sent", "MG021"),
    (RETRY, "sent", "MG021"),
    (RETRY_ANYWAY, "sent", "MG021"),
    (RETRY, "sending", "MG022"),
    (RETRY_ANYWAY, "sending", "MG022"),
    (RESCHEDULE, "sending", "MG022"),
    (RESCHEDULE, "sent", "MG021"),
    (RESCHEDULE, "failed", "MG021"),
    (RESCHEDULE, "cancelled", "MG021"),
]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("statement", "status", "sqlstate"), REFUSALS)
def test_actions_are_refused_in_other_statuses(
    queue: Queue, statement: str, status: str, sqlstate: str
) -> None:
    queue_id = queue.enqueue()
    if status == "sending":
        queue.claim_one()
    else:
        queue.run("UPDATE email_queue SET status = %s", status)
    assert refusal(queue, statement, queue_id) == sqlstate


@pytest.mark.parametrize("statement", [CANCEL, RETRY, RESCHEDULE])
@pytest.mark.parametrize("queue_id", [uuid4(), None])
def test_actions_on_an_unknown_email_are_refused(
    queue: Queue, statement: str, queue_id: UUID | None
) -> None:
    assert refusal(queue, statement, queue_id) == "MG020"


def test_a_retry_uses_the_fixed_template(conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com')").fetchone()
    assert row is not None
    version = "SELECT template_version FROM mailgres.claim('worker')"
    assert conn.execute(version).fetchone() == (1,)
    conn.execute(
        "SELECT mailgres.finish(jsonb_build_array(jsonb_build_object("
        "'id', id, 'token', lease_token, 'outcome', 'permanent'))) FROM email_queue"
    )
    conn.execute("UPDATE email_templates SET active_version = 2")
    conn.execute("SELECT retry_email(%s)", row)
    assert conn.execute(version).fetchone() == (2,)


# --- suppressed


@pytest.mark.usefixtures("clock")
def test_a_retry_of_a_suppressed_address_is_refused_and_says_so(queue: Queue) -> None:
    queue_id = dead(queue)
    queue.suppress()
    assert refusal(queue, RETRY, queue_id) == "MG028"
    assert refusal(queue, RETRY_ANYWAY, queue_id) == "MG028"
    queue.run("DELETE FROM email_suppressions")
    assert queue.value(RETRY, queue_id) is True


@pytest.mark.usefixtures("clock")
def test_a_retry_is_refused_for_the_tenant_alone_whose_mail_the_address_does_not_want(
    queue: Queue,
) -> None:
    queue_id = dead(queue)
    queue.suppress(tenant="other")
    assert queue.value(RETRY, queue_id) is True


def test_a_retry_of_an_uncertain_email_to_a_suppressed_address_is_refused(
    queue: Queue, clock: Clock
) -> None:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    assert queue.attempt("ambiguous").uncertain_since == clock.now
    queue.suppress()
    assert refusal(queue, RETRY, queue_id) == "MG028"


@pytest.mark.usefixtures("clock")
def test_a_retry_of_an_address_that_is_suppressed_in_another_spelling_is_refused(
    queue: Queue,
) -> None:
    queue_id = queue.enqueue(recipient_email="ana@bücher.example", max_retries=0)
    assert queue.attempt("permanent", message="no").status == "failed"
    queue.run(
        "INSERT INTO email_suppressions (recipient_email, tenant_id, reason)"
        " VALUES ('ana@xn--bcher-kva.example', '*', 'manual')"
    )
    assert refusal(queue, RETRY, queue_id) == "MG028"
