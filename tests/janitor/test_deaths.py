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

from janitor.house import House
from support.program import Program

HOUR = timedelta(hours=1)
Cause = Callable[[House], UUID]


def failed(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The events in the log."""
    return [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]


def tell(house: House) -> int:
    """Let the janitor do its duty."""
    return house.clean("deaths").handled


def crash(house: House) -> UUID:
    """Of a worker that died during the call."""
    house.use_provider("smtp")
    email = house.enqueue()
    house.start_attempts(house.claim())
    house.clock.forward(HOUR)
    house.reap()
    return email


def expire(house: House) -> UUID:
    """Of its time."""
    email = house.enqueue(expires_at=house.clock.now + HOUR)
    house.clock.forward(2 * HOUR)
    house.run("SELECT mailgres.expire()")
    return email


def set_aside(house: House) -> UUID:
    """Of a suppression, found by a claim, after a try that may have arrived."""
    house.use_provider("smtp")
    email = house.enqueue()
    house.run("UPDATE email_queue SET uncertain_since = mailgres.now(), provider = 'smtp'")
    house.suppress()
    assert house.claim() == []
    return email


def report(house: House) -> UUID:
    """By what a processor without a token reported."""
    email = house.enqueue(max_retries=0)
    house.run("SELECT process_pending_emails_for_retry()")
    house.run("SELECT mark_email_failed(%s, 'no')", email)
    return email


def by_hand(house: House) -> UUID:
    """By somebody who writes SQL."""
    email = house.enqueue()
    house.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    return email


CAUSES: dict[Cause, str] = {
    crash: "uncertain",
    expire: "expired",
    set_aside: "uncertain",
    report: "exhausted",
    by_hand: "permanent",
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_whoever_gave_it_up(house: House, caplog: pytest.LogCaptureFixture, cause: Cause) -> None:
    email = cause(house)
    assert house.email(email).status == "failed"
    assert tell(house) == 1
    assert tell(house) == 0
    (event,) = failed(caplog)
    row = house.email(email)
    told = {key: getattr(event, key) for key in ("jobId", "companyId", "errorReason", "deadReason")}
    assert told == {
        "jobId": str(email),
        "companyId": "default",
        "errorReason": row.error_message,
        "deadReason": CAUSES[cause],
    }
    assert (event.isRetryable, event.nextRetryDelay) == (False, None)  # type: ignore[attr-defined]
    assert event.levelname == "ERROR"


def test_who_dies_twice_is_told_twice(house: House, caplog: pytest.LogCaptureFixture) -> None:
    email = by_hand(house)
    house.run("SELECT retry_email(%s)", email)
    house.run("UPDATE email_queue SET status = 'failed', error_message = 'again'")
    house.run("UPDATE email_queue SET error_message = 'and again', retries = 2")
    assert tell(house) == 2
    assert [one.errorReason for one in failed(caplog)] == ["enough", "again"]  # type: ignore[attr-defined]


def test_a_transaction_that_took_long(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """What dies in it is told when it is committed, however long ago its clock stood still."""
    email = house.enqueue()
    with house.pool.connection() as slow, slow.transaction():
        slow.execute("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
        house.clock.forward(HOUR)
        assert tell(house) == 0
    assert tell(house) == 1
    assert [one.jobId for one in failed(caplog)] == [str(email)]  # type: ignore[attr-defined]


def test_many_janitors_at_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    emails = [house.enqueue() for _ in range(20)]
    house.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    start = Barrier(4)

    def one() -> None:
        start.wait()
        tell(house)

    threads = [Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(house)
    assert sorted(one.jobId for one in failed(caplog)) == sorted(map(str, emails))  # type: ignore[attr-defined]


def test_those_before_a_failure_are_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A chunk that fails takes nothing from those before it, which are committed."""
    emails = [house.enqueue() for _ in range(3)]
    house.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    house.run(
        "CREATE FUNCTION pg_temp_fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF (SELECT count(*) FROM mailgres.deaths) < 2 THEN"
        " RAISE 'no disk'; END IF; RETURN NULL; END$$"
    )
    house.run(
        "CREATE TRIGGER fail AFTER DELETE ON mailgres.deaths"
        " FOR EACH STATEMENT EXECUTE FUNCTION pg_temp_fail()"
    )
    with pytest.raises(psycopg.errors.RaiseException, match="no disk"):
        house.clean("deaths", chunk=1)
    first = [one.jobId for one in failed(caplog)]  # type: ignore[attr-defined]
    assert len(first) == 1
    house.run("DROP TRIGGER fail ON mailgres.deaths")
    assert tell(house) == 2
    told = sorted(one.jobId for one in failed(caplog))  # type: ignore[attr-defined]
    assert told == sorted(map(str, emails))


def test_a_schedule_without_a_worker(house: House) -> None:
    """`janitor --all` and `process` tell it in lines of JSON."""
    program = Program(house.url, {"MAILGRES_PROVIDERS": "null"})
    first = by_hand(house)
    lines = program.run("janitor", "--all").stderr.splitlines()
    assert [one["jobId"] for one in map(json.loads, lines) if one.get("event") == "JobFailed"] == [
        str(first)
    ]
    second = house.enqueue(expires_at=house.clock.now + HOUR)
    house.clock.forward(2 * HOUR)
    lines = program.run("process").stderr.splitlines()
    (event,) = [one for one in map(json.loads, lines) if one.get("event") == "JobFailed"]
    assert (event["jobId"], event["deadReason"]) == (str(second), "expired")


def test_who_leaves_the_queue_is_not_waited_for(house: House) -> None:
    """Where nobody ever tells, nothing grows."""
    by_hand(house)
    house.clock.forward(timedelta(days=8))
    house.clean("archive")
    assert house.value("SELECT count(*) FROM mailgres.deaths") == 0
