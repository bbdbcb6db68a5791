"""Every dead letter is logged once, as `JobFailed`, whatever made the email die."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from uuid import UUID

import psycopg
import pytest

from janitor.harness import JanitorHarness
from support.program import Program

HOUR = timedelta(hours=1)
Cause = Callable[[JanitorHarness], UUID]


def failed(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the events in the log."""
    return [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]


def log(harness: JanitorHarness) -> None:
    """Run the notifier."""
    harness.clean("notify")


def crash(harness: JanitorHarness) -> UUID:
    """The worker dies during the call."""
    harness.use_provider("smtp")
    email = harness.enqueue()
    harness.start_attempts(harness.claim())
    harness.clock.forward(HOUR)
    harness.reap()
    return email


def expire(harness: JanitorHarness) -> UUID:
    """The email expires."""
    email = harness.enqueue(expires_at=harness.clock.now + HOUR)
    harness.clock.forward(2 * HOUR)
    harness.run("SELECT mailgres.expire()")
    return email


def settle_unsendable(harness: JanitorHarness) -> UUID:
    """A claim finds a suppression after an uncertain attempt."""
    harness.use_provider("smtp")
    email = harness.enqueue()
    harness.run("UPDATE email_queue SET uncertain_since = mailgres.now(), provider = 'smtp'")
    harness.suppress()
    assert harness.claim() == []
    return email


def report(harness: JanitorHarness) -> UUID:
    """A processor without a token reports a failure."""
    email = harness.enqueue(max_retries=0)
    harness.run("SELECT process_pending_emails_for_retry()")
    harness.run("SELECT mark_email_failed(%s, 'no')", email)
    return email


def by_hand(harness: JanitorHarness) -> UUID:
    """An operator sets the status in SQL."""
    email = harness.enqueue()
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    return email


CAUSES: dict[Cause, str] = {
    crash: "uncertain",
    expire: "expired",
    settle_unsendable: "uncertain",
    report: "exhausted",
    by_hand: "permanent",
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_a_dead_letter_is_logged_once_whatever_made_it_die(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture, cause: Cause
) -> None:
    email = cause(harness)
    assert harness.email(email).status == "failed"
    log(harness)
    log(harness)
    (event,) = failed(caplog)
    row = harness.email(email)
    reported = {
        key: getattr(event, key) for key in ("jobId", "companyId", "errorReason", "deadReason")
    }
    assert reported == {
        "jobId": str(email),
        "companyId": "default",
        "errorReason": row.error_message,
        "deadReason": CAUSES[cause],
    }
    assert (event.isRetryable, event.nextRetryDelay) == (False, None)  # type: ignore[attr-defined]
    assert event.levelname == "ERROR"


def test_an_email_that_dies_twice_is_logged_twice(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    email = by_hand(harness)
    harness.run("SELECT retry_email(%s)", email)
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'again'")
    harness.run("UPDATE email_queue SET error_message = 'and again', retries = 2")
    log(harness)
    assert [one.errorReason for one in failed(caplog)] == ["enough", "again"]  # type: ignore[attr-defined]


def test_dead_letters_of_a_long_transaction_are_logged_after_its_commit(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    email = harness.enqueue()
    with harness.pool.connection() as slow, slow.transaction():
        slow.execute("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
        harness.clock.forward(HOUR)
        log(harness)
        assert failed(caplog) == []
    log(harness)
    assert [one.jobId for one in failed(caplog)] == [str(email)]  # type: ignore[attr-defined]


def test_notifiers_that_run_at_once_log_each_dead_letter_once(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    emails = [harness.enqueue() for _ in range(20)]
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    start = Barrier(4)

    def one() -> None:
        start.wait()
        log(harness)

    threads = [Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log(harness)
    assert sorted(one.jobId for one in failed(caplog)) == sorted(map(str, emails))  # type: ignore[attr-defined]


def test_dead_letters_of_earlier_chunks_are_logged_when_a_later_chunk_fails(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    emails = [harness.enqueue() for _ in range(3)]
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    harness.run(
        "CREATE FUNCTION pg_temp_fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF (SELECT count(*) FROM mailgres.dead_letters_to_log) < 2 THEN"
        " RAISE 'no disk'; END IF; RETURN NULL; END$$"
    )
    harness.run(
        "CREATE TRIGGER fail AFTER DELETE ON mailgres.dead_letters_to_log"
        " FOR EACH STATEMENT EXECUTE FUNCTION pg_temp_fail()"
    )
    with pytest.raises(psycopg.errors.RaiseException, match="no disk"):
        harness.clean("notify", chunk=1)
    first = [one.jobId for one in failed(caplog)]  # type: ignore[attr-defined]
    assert len(first) == 1
    harness.run("DROP TRIGGER fail ON mailgres.dead_letters_to_log")
    log(harness)
    reported = sorted(one.jobId for one in failed(caplog))  # type: ignore[attr-defined]
    assert reported == sorted(map(str, emails))


def test_janitor_all_and_process_log_dead_letters_as_json(harness: JanitorHarness) -> None:
    program = Program(harness.url, {"MAILGRES_PROVIDERS": "capture"})
    first = by_hand(harness)
    lines = program.run("janitor", "--all").stderr.splitlines()
    assert [one["jobId"] for one in map(json.loads, lines) if one.get("event") == "JobFailed"] == [
        str(first)
    ]
    second = harness.enqueue(expires_at=harness.clock.now + HOUR)
    harness.clock.forward(2 * HOUR)
    lines = program.run("process").stderr.splitlines()
    (event,) = [one for one in map(json.loads, lines) if one.get("event") == "JobFailed"]
    assert (event["jobId"], event["deadReason"]) == (str(second), "expired")


def test_archiving_empties_the_outboxes_where_no_notifier_runs(harness: JanitorHarness) -> None:
    by_hand(harness)
    harness.clock.forward(timedelta(days=8))
    harness.clean("archive_dead_letters")
    for outbox in ("dead_letters_to_log", "dead_letters_to_notify"):
        assert harness.value(f"SELECT count(*) FROM mailgres.{outbox}") == 0
