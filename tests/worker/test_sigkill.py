"""A worker killed at any step: the next one finishes the job.

What counts is what the provider really accepted. With idempotency keys that is every email exactly
once. Without, none is missing, and twice only where a call that had begun was interrupted and the
template says `resend`; with `hold` a person decides.
"""

from __future__ import annotations

import pytest

from support.queue import HOLD, RESEND
from worker.harness import WorkerHarness, until

EMAILS = 12
STEPS = ("claimed", "start_attempts", "inside", "left", "finish", "during finish")
"""Where it is killed: emails claimed; about to begin; in the call; accepted, but the answer not
read; answer known, but not written; written, but not committed."""
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def kill_at(harness: WorkerHarness, step: str, *, idempotent: bool, template: str) -> set[str]:
    """Let a worker work until it is at a step, and kill it; the ids of all emails."""
    harness.use_double(idempotent=idempotent)
    emails = harness.fill(EMAILS, template)
    at_provider = step in ("inside", "left")
    double = {"idempotent": idempotent, "hang": step if at_provider else None}
    stop_at = None if at_provider else step
    with harness.worker(name="the victim", stop_at=stop_at, double=double) as victim:
        until(lambda: harness.ledger.entries(step), f"it is at {step}")
        victim.kill()
    # What it had asked of the database before it died may still be done.
    until(lambda: harness.value(OTHERS) == 0, "its connections have ended")
    return emails


@pytest.mark.parametrize("step", [step for step in STEPS if step != "start_attempts"])
@pytest.mark.parametrize("letter", [HOLD, RESEND])
def test_emails_of_a_killed_worker_are_retried_with_the_same_key(
    harness: WorkerHarness, step: str, letter: str
) -> None:
    emails = kill_at(harness, step, idempotent=True, template=letter)
    assert harness.statuses().get("sending", 0) > 0
    harness.work_off()
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.statuses() == {"sent": EMAILS}
    assert harness.value("SELECT max(retries) FROM email_queue") == 0


@pytest.mark.parametrize("step", STEPS)
def test_emails_of_a_killed_worker_are_sent_again_without_keys_if_the_template_says_so(
    harness: WorkerHarness, step: str
) -> None:
    emails = kill_at(harness, step, idempotent=False, template=RESEND)
    started = {str(row.id) for row in harness.rows(STARTED)}
    before = harness.ledger.accepted()
    harness.work_off(double={"idempotent": False})

    accepted = harness.ledger.accepted()
    assert set(accepted) == emails
    twice = {email for email, count in accepted.items() if count == 2}
    assert max(accepted.values()) <= 2
    assert twice == started & set(before)
    assert bool(twice) == (step in ("left", "finish", "during finish"))
    assert harness.statuses() == {"sent": EMAILS}


@pytest.mark.parametrize("step", STEPS)
def test_emails_of_a_killed_worker_are_held_without_keys_if_the_template_says_so(
    harness: WorkerHarness, step: str
) -> None:
    emails = kill_at(harness, step, idempotent=False, template=HOLD)
    started = {str(row.id) for row in harness.rows(STARTED)}
    harness.work_off(double={"idempotent": False})

    accepted = harness.ledger.accepted()
    assert set(accepted.values()) <= {1}
    dead = {
        str(row.id)
        for row in harness.rows("SELECT id FROM email_queue WHERE dead_reason = 'uncertain'")
    }
    assert dead == started
    assert bool(dead) == (step not in ("claimed", "start_attempts"))
    assert emails - set(accepted) <= dead
    sent = harness.rows("SELECT id FROM email_queue WHERE status = 'sent'")
    assert {str(row.id) for row in sent} == emails - dead


STARTED = "SELECT id FROM email_queue WHERE attempt_started_at IS NOT NULL"


def test_workers_killed_at_any_step_lose_no_email(harness: WorkerHarness) -> None:
    """Killed at whatever step it is at, several times over."""
    harness.use_double(batch_size=3)
    emails = harness.fill(150, RESEND, tenants=5)
    double = {"batch_size": 3, "delay": 0.02}
    for number in range(4):
        before = harness.ledger.accepted().total()
        bounded = {**double, "hang_after": 25}  # so that it cannot be done before it is killed
        with harness.worker(name=f"victim-{number}", double=bounded) as victim:
            until(lambda: harness.ledger.accepted().total() >= before + 15, "it works")  # noqa: B023
            victim.kill()
    assert "sending" in harness.statuses()
    harness.work_off(double=double)
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    assert harness.statuses() == {"sent": 150}


def test_an_email_that_kills_its_worker_becomes_a_dead_letter(harness: WorkerHarness) -> None:
    """One that takes its worker down every time is taken out, and the others get through."""
    harness.use_double()
    harness.run("UPDATE mailgres.settings SET max_lease_losses = 2")
    emails = harness.fill(3)
    poison = harness.enqueue(recipient_email="poison@example.com")
    double = {"hang": "inside", "hang_on": "poison@example.com"}
    for number in (1, 2):
        with harness.worker(name=f"victim-{number}", double=double) as victim:
            until(lambda: len(hung(harness, str(poison))) == number, "it is hit")  # noqa: B023
            until(lambda: harness.statuses().get("sent") == 3, "the others are sent")
            victim.kill()
        harness.expire_leases()
        assert harness.reap() == 1
    assert (harness.email(poison).status, harness.email(poison).dead_reason) == (
        "failed",
        "crashed",
    )
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)


@pytest.mark.parametrize("idempotent", [True, False])
def test_emails_that_end_their_worker_take_no_other_with_them(
    harness: WorkerHarness, *, idempotent: bool
) -> None:
    """Two of seven end every worker that calls the provider with them: only these two die."""
    harness.use_double(idempotent=idempotent)
    bombs = ["bomb1@example.com", "bomb2@example.com"]
    culprits = {str(harness.enqueue(RESEND, bomb)) for bomb in bombs}
    emails = harness.fill(5, RESEND)
    double = {"idempotent": idempotent, "dies_on": bombs, "delay": 0.2}
    most_losses: int = harness.value("SELECT max_lease_losses FROM mailgres.settings")
    for number in range(2 * most_losses + 1):
        with harness.worker(name=f"victim-{number}", double=double) as victim:
            until(lambda: harness.is_settled() or not victim.alive(), "it died, or all is done")
        harness.expire_leases()
    dead = harness.rows("SELECT id FROM email_queue WHERE dead_reason = 'crashed'")
    assert {str(row.id) for row in dead} == culprits
    assert harness.statuses() == {"sent": 5, "failed": 2}
    accepted = harness.ledger.accepted()
    assert set(accepted) == emails
    # With all on board at the first crash, each of the others had a second attempt at most.
    assert max(accepted.values()) <= (1 if idempotent else 2)


def hung(harness: WorkerHarness, poison: str) -> list[object]:
    return [entry for entry in harness.ledger.entries("inside") if poison in entry["ids"]]
