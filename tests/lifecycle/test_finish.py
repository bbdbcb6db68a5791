"""Each outcome of an attempt leads to one status and spends what it should."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

from support.queue import WITH_KEYS, WITHOUT_KEYS, Clock, Queue, is_leased, report

MINUTE = timedelta(minutes=1)


class Case(NamedTuple):
    """What the first attempt of an email with three retries leads to."""

    outcome: str
    status: str
    spent: int = 0
    wait: timedelta | None = None
    dead_reason: str | None = None
    uncertain: bool = False
    parked: bool = False
    provider: str = WITH_KEYS


CASES = [
    Case("sent", "sent"),
    Case("sent", "sent", provider=WITHOUT_KEYS),
    Case("transient", "pending", spent=1, wait=MINUTE),
    Case("transient", "pending", spent=1, wait=MINUTE, provider=WITHOUT_KEYS),
    Case("rate", "pending", wait=timedelta(seconds=2)),
    Case("quota", "pending", wait=15 * MINUTE),
    Case("config", "pending", wait=15 * MINUTE, parked=True),
    Case("permanent", "failed", dead_reason="permanent"),
    Case("permanent", "failed", dead_reason="permanent", provider=WITHOUT_KEYS),
    Case("ambiguous", "pending", spent=1, wait=MINUTE, uncertain=True),
    Case("ambiguous", "failed", dead_reason="uncertain", uncertain=True, provider=WITHOUT_KEYS),
    Case("uncertain", "failed", dead_reason="uncertain", uncertain=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.outcome} at {case.provider}")
def test_the_first_attempt_has_the_outcome_of_its_class(
    queue: Queue, clock: Clock, case: Case
) -> None:
    queue.use_provider(case.provider)
    queue_id = queue.enqueue()
    due = queue.email(queue_id).next_retry_at
    claimed = queue.claim_one()
    queue.start_attempts([claimed])
    reported = {"code": "E1", "message": "it said no", "detail": "550 no", "duration_ms": 120}
    (done,) = queue.finish(report(claimed, case.outcome, **reported))
    email = queue.email(queue_id)
    assert done[1:-1] == (email.status, email.retries, email.next_retry_at, email.dead_reason)
    assert (done.id, done.refused) == (queue_id, None)
    assert (email.status, email.retries) == (case.status, case.spent)
    assert email.next_retry_at == (clock.now + case.wait if case.wait else due)
    assert email.dead_reason == case.dead_reason
    assert email.dead_at == (clock.now if case.dead_reason else None)
    assert email.uncertain_since == (clock.now if case.uncertain else None)
    assert email.parked_since == (clock.now if case.parked else None)
    assert email.last_duration_ms == 120
    assert (email.generation, email.lease_losses) == (0, 0)
    assert not is_leased(email)


FAULTS = [case for case in CASES if case.outcome != "sent"]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: f"{case.outcome} at {case.provider}")
def test_finish_stores_code_class_and_text_of_the_error(queue: Queue, case: Case) -> None:
    queue.use_provider(case.provider)
    queue.enqueue()
    email = queue.attempt(case.outcome, code="E1", message="it said no", detail="550 no")
    expected = "ambiguous" if case.outcome == "uncertain" else case.outcome
    assert (email.error_class, email.error_code) == (expected, "E1")
    assert (email.error_message, email.error_detail) == ("it said no", "550 no")
    assert (email.sent_at, email.provider_message_id) == (None, None)
    assert email.provider == case.provider


@pytest.mark.parametrize("outcome", ["transient", "rate", "config", "permanent", "ambiguous"])
@pytest.mark.parametrize("reported", [{}, {"message": ""}, {"message": None, "code": ""}])
def test_a_fault_without_code_and_text_has_a_message(
    queue: Queue, outcome: str, reported: dict[str, Any]
) -> None:
    queue.enqueue()
    assert queue.attempt(outcome, **reported).error_message == f"{outcome} fault"


def test_an_error_without_a_message_shows_its_code(queue: Queue) -> None:
    queue.enqueue()
    assert queue.attempt("permanent", code="E7").error_message == "E7"


def test_a_sent_email_has_no_error_of_earlier_attempts(queue: Queue, clock: Clock) -> None:
    queue.use_provider(WITH_KEYS)
    queue.enqueue()
    queue.attempt("ambiguous", code="E1", message="lost", detail="raw")
    clock.forward(MINUTE)
    email = queue.attempt("sent", provider_message_id="re_1")
    assert (email.status, email.sent_at) == ("sent", clock.now)
    faults = (email.error_class, email.error_code, email.error_message, email.error_detail)
    assert faults == (None, None, None, None)
    assert (email.uncertain_since, email.parked_since, email.retries) == (None, None, 1)
    assert (email.provider, email.provider_message_id, email.resend_id) == (
        WITH_KEYS,
        *["re_1"] * 2,
    )


def test_resend_id_is_for_resend_only(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue()
    email = queue.attempt("sent", provider_message_id="x")
    assert (email.provider_message_id, email.resend_id) == ("x", None)


@pytest.mark.parametrize("status", ["transient", "ambiguous"])
def test_an_email_dies_after_its_last_retry(queue: Queue, clock: Clock, status: str) -> None:
    """1, 5 and 15 minutes between four attempts; then dead."""
    queue.use_provider(WITH_KEYS)
    queue.enqueue()
    waits = []
    for retries in (1, 2, 3):
        email = queue.attempt(status, message=f"fault {retries}")
        assert (email.status, email.retries) == ("pending", retries)
        waits.append(email.next_retry_at - clock.now)
        clock.set(email.next_retry_at - timedelta(seconds=1))
        assert queue.claim() == []
        clock.set(email.next_retry_at)
    email = queue.attempt(status, message="the last fault")
    assert waits == [MINUTE, 5 * MINUTE, 15 * MINUTE]
    assert (email.status, email.retries) == ("failed", 3)
    assert email.dead_reason == ("exhausted" if status == "transient" else "uncertain")
    assert email.error_message == "the last fault"


def test_without_retries_the_first_fault_is_the_last(queue: Queue) -> None:
    queue.enqueue(max_retries=0)
    email = queue.attempt("transient")
    assert (email.status, email.retries, email.dead_reason) == ("failed", 0, "exhausted")


@pytest.mark.parametrize("outcome", ["rate", "quota"])
def test_rate_and_quota_faults_spend_no_retry(queue: Queue, clock: Clock, outcome: str) -> None:
    queue.enqueue(max_retries=0)
    for _ in range(10):
        later = clock.now + timedelta(hours=24)
        email = queue.attempt(outcome, retry_after=later - clock.now)
        assert (email.status, email.retries, email.next_retry_at) == ("pending", 0, later)
        clock.set(later)
    assert queue.attempt("sent").status == "sent"


def test_a_fault_of_the_configuration_parks_an_email_for_three_days(
    queue: Queue, clock: Clock
) -> None:
    queue.enqueue(max_retries=0)
    parked = clock.now
    steps = [parked + number * 15 * MINUTE for number in (0, 1, 2, 100, 200, 286, 287)]
    for now in steps:
        clock.set(now)
        email = queue.attempt("config", message="domain not verified")
        assert (email.status, email.retries, email.parked_since) == ("pending", 0, parked)
        assert email.next_retry_at == clock.now + 15 * MINUTE
    clock.set(parked + timedelta(days=3))
    email = queue.attempt("config", message="domain not verified")
    assert (email.status, email.retries, email.dead_reason) == ("failed", 0, "exhausted")


@pytest.mark.parametrize(("asked", "waits"), [(0, 15), (1, 15), (60, 60)])
def test_a_parked_email_ignores_a_shorter_retry_after(
    queue: Queue, clock: Clock, asked: int, waits: int
) -> None:
    """It costs the email nothing, so who says "come back at once" would be called all the time."""
    queue.enqueue()
    email = queue.attempt("config", retry_after=asked * MINUTE)
    assert email.next_retry_at == clock.now + waits * MINUTE


def test_another_fault_than_the_configuration_ends_the_parking(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    queue.attempt("config")
    clock.forward(15 * MINUTE)
    assert queue.attempt("transient").parked_since is None


@pytest.mark.parametrize("outcome", ["rate", "quota"])
def test_a_rate_limit_does_not_restart_the_parking_time(
    queue: Queue, clock: Clock, outcome: str
) -> None:
    """It says nothing about the set-up."""
    queue.enqueue()
    parked = queue.attempt("config").parked_since
    clock.forward(15 * MINUTE)
    assert queue.attempt(outcome).parked_since == parked


def expiring(queue: Queue, at: datetime) -> None:
    queue.use_provider(WITH_KEYS)
    queue.enqueue(expires_at=at)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("transient", "expired"),
        ("quota", "expired"),
        ("config", "expired"),
        ("permanent", "permanent"),
        ("ambiguous", "uncertain"),
    ],
)
def test_an_email_that_would_expire_before_its_retry_dies_now(
    queue: Queue, clock: Clock, outcome: str, reason: str
) -> None:
    expiring(queue, clock.now + MINUTE)
    email = queue.attempt(outcome)
    assert (email.status, email.dead_reason, email.retries) == ("failed", reason, 0)


def test_an_email_that_expires_after_its_retry_is_retried(queue: Queue, clock: Clock) -> None:
    expiring(queue, clock.now + MINUTE + timedelta(seconds=1))
    assert queue.attempt("transient").status == "pending"


def test_finish_takes_many_outcomes_in_one_call(queue: Queue) -> None:
    queue.use_provider(WITH_KEYS)
    for _ in range(7):
        queue.enqueue()
    claimed = queue.claim()
    outcomes = ["sent", "transient", "rate", "quota", "config", "permanent", "ambiguous"]
    done = queue.finish(*map(report, claimed, outcomes))
    expected = {
        email.id: "failed"
        if reported == "permanent"
        else "sent"
        if reported == "sent"
        else "pending"
        for email, reported in zip(claimed, outcomes, strict=True)
    }
    assert {row.id: row.status for row in done} == expected
    assert {row.refused for row in done} == {None}
    stored = queue.rows("SELECT id, status FROM email_queue")
    assert {row.id: row.status for row in stored} == expected


def test_finish_accepts_an_empty_list(queue: Queue) -> None:
    assert queue.finish() == []


@pytest.mark.parametrize("others", [0, 2])
def test_an_outcome_under_a_lost_lease_is_reported_and_changes_nothing(
    queue: Queue, clock: Clock, others: int
) -> None:
    """Also beside outcomes of emails that are still held."""
    queue.enqueue()
    lost = queue.claim_one("slow")
    clock.forward(2 * MINUTE)
    assert queue.reap() == 1
    before = queue.claim_one("second")
    for _ in range(others):
        queue.enqueue()
    held = queue.claim("slow") if others else []
    done = queue.finish(report(lost, "sent"), *(report(email, "sent") for email in held))
    assert {row.id: row.refused for row in done} == {
        lost.id: "MG030",
        **{email.id: None for email in held},
    }
    assert queue.email(lost.id) == before


@pytest.mark.parametrize("outcome", ["sent", "transient", "permanent"])
def test_an_outcome_that_is_reported_twice_counts_once(queue: Queue, outcome: str) -> None:
    queue.enqueue()
    claimed = queue.claim_one()
    queue.finish(report(claimed, "sent"))
    before = queue.email(claimed.id)
    (again,) = queue.finish(report(claimed, outcome))
    assert again.refused == "MG030"
    assert queue.email(claimed.id) == before


@pytest.mark.parametrize("token", ["00000000-0000-0000-0000-000000000001", None])
def test_an_outcome_without_the_current_token_is_refused(queue: Queue, token: str | None) -> None:
    queue.enqueue()
    claimed = queue.claim_one()
    (done,) = queue.finish({**report(claimed, "sent"), "token": token})
    assert done.refused == "MG030"
    assert queue.email(claimed.id) == claimed


@pytest.mark.parametrize(
    "reported",
    [
        {"outcome": "sent", "provider_message_id": ""},
        {"outcome": "sent", "provider_message_id": None},
        {"outcome": "sent"},
        {"outcome": "delivered", "provider_message_id": "x"},
        {"outcome": None},
        {"outcome": ""},
        {},
    ],
)
def test_finish_refuses_an_unknown_outcome_and_writes_none(
    queue: Queue, reported: dict[str, Any]
) -> None:
    queue.enqueue()
    queue.enqueue()
    first, second = queue.claim()
    named = {"id": str(second.id), "token": str(second.lease_token)}
    with pytest.raises(psycopg.Error) as refusal, queue.conn.transaction():
        queue.finish(report(first, "sent"), {**named, **reported})
    assert refusal.value.sqlstate == "MG031"
    assert refusal.value.diag.message_hint
    assert queue.email(first.id) == first


@pytest.mark.parametrize("text", ["{}", "null", '"sent"', None])
def test_finish_refuses_outcomes_that_are_not_an_array(queue: Queue, text: str | None) -> None:
    with pytest.raises(psycopg.Error) as refusal, queue.conn.transaction():
        queue.rows("SELECT * FROM mailgres.finish(%s)", text)
    assert refusal.value.sqlstate == "MG031"


@pytest.mark.usefixtures("clock")
def test_a_copy_that_was_refused_is_in_the_log_of_the_sent_email(queue: Queue) -> None:
    queue_id = queue.enqueue(cc=["cc@example.com"], bcc=["bcc@example.com"])
    text = "5.1.1 <cc@example.com>: no such user"
    refused = {"code": "5.1.1", "message": text, "detail": f"cc@example.com: 550 {text}"}
    email = queue.attempt("sent", refused_copies=[refused, {"code": "550", "message": ""}])
    assert (email.status, email.error_code) == ("sent", None)
    sent, one, other = queue.log(queue_id)
    assert (sent.event, one.event, other.event) == ("sent", "copy_refused", "copy_refused")
    assert (one.error_code, one.error_message) == ("5.1.1", "5.1.1 <<address>>: no such user")
    assert one.error_detail == f"cc@example.com: 550 {text}"
    assert (one.provider, one.attempt, one.to_status) == (email.provider, 1, "sent")
    assert (other.error_code, other.error_message) == ("550", "a copy was refused")
    assert queue.value("SELECT count(*) FROM email_suppressions") == 0


@pytest.mark.usefixtures("clock")
def test_a_copy_of_an_email_whose_lease_was_lost_is_not_logged(queue: Queue) -> None:
    queue_id = queue.enqueue()
    claimed = queue.claim_one()
    queue.run("SELECT mark_email_sent(%s, 'elsewhere')", queue_id)
    (done,) = queue.finish(report(claimed, "sent", refused_copies=[{"code": "550"}]))
    assert done.refused == "MG030"
    assert "copy_refused" not in queue.events(queue_id)
