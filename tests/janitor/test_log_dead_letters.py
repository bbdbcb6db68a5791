"""Every email that dies is in the log once, as `JobFailed`, whoever gave it up."""

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
    """The events in the log."""
    return [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]


def tell(harness: JanitorHarness) -> int:
    """Let the janitor do its duty."""
    return harness.clean("log_dead_letters").handled


def crash(harness: JanitorHarness) -> UUID:
    """Of a worker that died during the call."""
    harness.use_provider("smtp")
    email = harness.enqueue()
    harness.start_attempts(harness.claim())
    harness.clock.forward(HOUR)
    harness.reap()
    return email


def expire(harness: JanitorHarness) -> UUID:
    """Of its time."""
    email = harness.enqueue(expires_at=harness.clock.now + HOUR)
    harness.clock.forward(2 * HOUR)
    harness.run("SELECT mailgres.expire()")
    return email


def settle_unsendable(harness: JanitorHarness) -> UUID:
    """Of a suppression, found by a claim, after a try that may have arrived."""
    harness.use_provider("smtp")
    email = harness.enqueue()
    harness.run("UPDATE email_queue SET uncertain_since = mailgres.now(), provider = 'smtp'")
    harness.suppress()
    assert harness.claim() == []
    return email


def report(harness: JanitorHarness) -> UUID:
    """By what a processor without a token reported."""
    email = harness.enqueue(max_retries=0)
    harness.run("SELECT process_pending_emails_for_retry()")
    harness.run("SELECT mark_email_failed(%s, 'no')", email)
    return email


def by_hand(harness: JanitorHarness) -> UUID:
    """By somebody who writes SQL."""
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
def test_whoever_gave_it_up(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture, cause: Cause
) -> None:
    email = cause(harness)
    assert harness.email(email).status == "failed"
    assert tell(harness) == 1
    assert tell(harness) == 0
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


def test_who_dies_twice_is_told_twice(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    email = by_hand(harness)
    harness.run("SELECT retry_email(%s)", email)
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'again'")
    harness.run("UPDATE email_queue SET error_message = 'and again', retries = 2")
    assert tell(harness) == 2
    assert [one.errorReason for one in failed(caplog)] == ["enough", "again"]  # type: ignore[attr-defined]


def test_a_transaction_that_took_long(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """What dies in it is told when it is committed, however long ago its clock stood still."""
    email = harness.enqueue()
    with harness.pool.connection() as slow, slow.transaction():
        slow.execute("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
        harness.clock.forward(HOUR)
        assert tell(harness) == 0
    assert tell(harness) == 1
    assert [one.jobId for one in failed(caplog)] == [str(email)]  # type: ignore[attr-defined]


def test_many_janitors_at_once(harness: JanitorHarness, caplog: pytest.LogCaptureFixture) -> None:
    emails = [harness.enqueue() for _ in range(20)]
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    start = Barrier(4)

    def one() -> None:
        start.wait()
        tell(harness)

    threads = [Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(harness)
    assert sorted(one.jobId for one in failed(caplog)) == sorted(map(str, emails))  # type: ignore[attr-defined]


def test_those_before_a_failure_are_told(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A chunk that fails takes nothing from those before it, which are committed."""
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
        harness.clean("log_dead_letters", chunk=1)
    first = [one.jobId for one in failed(caplog)]  # type: ignore[attr-defined]
    assert len(first) == 1
    harness.run("DROP TRIGGER fail ON mailgres.dead_letters_to_log")
    assert tell(harness) == 2
    reported = sorted(one.jobId for one in failed(caplog))  # type: ignore[attr-defined]
    assert reported == sorted(map(str, emails))


def test_a_schedule_without_a_worker(harness: JanitorHarness) -> None:
    """`janitor --all` and `process` tell it in lines of JSON."""
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


def test_who_leaves_the_queue_is_not_waited_for(harness: JanitorHarness) -> None:
    """Where nobody ever tells, nothing grows."""
    by_hand(harness)
    harness.clock.forward(timedelta(days=8))
    harness.clean("archive_dead_letters")
    assert harness.value("SELECT count(*) FROM mailgres.dead_letters_to_log") == 0
