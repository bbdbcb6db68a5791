"""How long to wait: policies are rows, and one function reads them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from statistics import mean
from typing import Any

import psycopg
import pytest

from support.queue import Clock, Queue

# The waits of each policy before jitter, in seconds, as many as it has retries.
POLICIES: dict[str, list[float]] = {
    "stepped": [60, 300, 900],
    "gateway": [1, 2, 4, 8],
    "smtp": [1, 2, 4, 8],
    "development": [0.5, 1],
    "patient": [300, 600],
    "integration": [60, 300],
}
# After many retries: the last step repeats, a doubling wait meets its cap.
LONGEST = {
    "stepped": 900,
    "gateway": 60,
    "smtp": 300,
    "development": 30,
    "patient": 86400,
    "integration": 300,
}
JITTER = {"gateway": (0.75, 1.25), "smtp": (0.75, 1.25), "integration": (1.0, 1.2)}
SAMPLES = 5000


def delays(queue: Queue, policy: str, retry: int, count: int = 1, **own: Any) -> list[float]:
    """Ask `count` times how long to wait, in seconds."""
    rows = queue.rows(
        "SELECT date_part('epoch', mailgres.retry_delay(p, %s, %s, %s))"
        " FROM mailgres.retry_policies p, generate_series(1, %s) WHERE p.name = %s",
        *(retry, own.get("first"), own.get("cap"), count, policy),
    )
    return [row[0] for row in rows]


def test_every_seeded_policy_is_tested(queue: Queue) -> None:
    seeded = queue.rows("SELECT name, max_retries FROM mailgres.retry_policies")
    assert {row.name: row.max_retries for row in seeded} == {
        name: len(waits) for name, waits in POLICIES.items()
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_waits_as_documented(queue: Queue, policy: str) -> None:
    low, high = JITTER.get(policy, (1.0, 1.0))
    for retry, wait in enumerate(POLICIES[policy], 1):
        for delay in delays(queue, policy, retry, count=20):
            assert wait * low <= delay <= wait * high


@pytest.mark.parametrize("policy", LONGEST)
@pytest.mark.parametrize("retry", [20, 1000, 2**31 - 1])
def test_no_wait_is_longer_than_the_cap_of_its_policy(
    queue: Queue, policy: str, retry: int
) -> None:
    low, high = JITTER.get(policy, (1.0, 1.0))
    (delay,) = delays(queue, policy, retry)
    assert LONGEST[policy] * low <= delay <= LONGEST[policy] * high


@pytest.mark.parametrize("retry", [1, 15, 31, 2**31 - 1])
@pytest.mark.parametrize("first", [None, "30 days"])
def test_no_factor_makes_a_wait_that_cannot_be_expressed(
    queue: Queue, retry: int, first: str | None
) -> None:
    queue.run("UPDATE mailgres.retry_policies SET factor = 10 WHERE base IS NOT NULL")
    (delay,) = delays(queue, "patient", retry, first=first)
    assert 0 < delay <= LONGEST["patient"]


SPANS = """
    SELECT attrelid::regclass::text AS name, attname AS column,
           CASE atttypid WHEN 'interval'::regtype THEN '178000000 years' ELSE '{-1 day}' END AS bad
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid AND c.relkind = 'r'
    WHERE attnum > 0 AND atttypid IN ('interval'::regtype, 'interval[]'::regtype)
      AND attrelid IN (
          SELECT oid FROM mailgres.rights()
          WHERE grantee = 'mailgres_operator'::regrole AND privilege = 'UPDATE')
"""


def test_every_interval_column_has_an_upper_bound(queue: Queue) -> None:
    """It would make every outcome, every email or a janitor fail."""
    spans = queue.rows(SPANS)
    assert len(spans) > 10
    for one in spans:
        refused = pytest.raises(psycopg.errors.CheckViolation)
        with refused, queue.conn.transaction():
            queue.run(f"UPDATE {one.name} SET {one.column} = %s", one.bad)


@pytest.mark.parametrize("retry", [0, -5])
def test_there_is_no_retry_before_the_first(queue: Queue, retry: int) -> None:
    assert delays(queue, "stepped", retry) == [60]


@pytest.mark.parametrize("policy", JITTER)
@pytest.mark.parametrize("retry", [1, 2])
def test_jitter_is_a_uniform_distribution(queue: Queue, policy: str, retry: int) -> None:
    """Within bounds, centred, and spread: each bound lies ten standard errors away or more."""
    wait = POLICIES[policy][retry - 1]
    low, high = (wait * bound for bound in JITTER[policy])
    sample = delays(queue, policy, retry, count=SAMPLES)
    assert all(low <= delay <= high for delay in sample)
    # The standard deviation of a uniform distribution is its width / sqrt(12), that of the mean
    # of 5,000 a 245th of the width.
    assert abs(mean(sample) - (low + high) / 2) < (high - low) / 24.5
    quarters = [low + (high - low) * part / 4 for part in range(5)]
    for start, end in pairwise(quarters):
        # A quarter holds 1,250, with a standard deviation of 31.
        assert 940 < sum(start <= delay < end for delay in sample) < 1560


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - JITTER.keys()))
def test_policies_without_jitter_always_wait_the_same(queue: Queue, policy: str) -> None:
    assert len(set(delays(queue, policy, 1, count=50))) == 1


@pytest.mark.parametrize(
    ("policy", "own", "waits"),
    [
        ("stepped", {"first": timedelta(seconds=10)}, [10, 20, 40, 80]),
        ("stepped", {"cap": timedelta(seconds=90)}, [60, 90, 90]),
        ("patient", {"first": timedelta(hours=10)}, [36000, 72000, 86400]),
        (
            "development",
            {"first": timedelta(seconds=1), "cap": timedelta(seconds=3)},
            [1, 2, 3, 3],
        ),
        ("development", {"first": timedelta(0)}, [0, 0]),
    ],
)
def test_an_email_may_override_the_waits_of_its_policy(
    queue: Queue, policy: str, own: dict[str, Any], waits: list[float]
) -> None:
    assert [delays(queue, policy, retry, **own)[0] for retry in range(1, len(waits) + 1)] == waits


def tries(queue: Queue, clock: Clock) -> list[timedelta]:
    """Let the one email fail until it is dead; return the waits between its attempts."""
    waits = []
    while (email := queue.attempt("transient")).status == "pending":
        waits.append(email.next_retry_at - clock.now)
        clock.set(email.next_retry_at)
    assert email.dead_reason == "exhausted"
    assert email.retries == email.max_retries == len(waits)
    return waits


def seconds(*values: float) -> list[timedelta]:
    return [timedelta(seconds=value) for value in values]


def test_the_policy_of_the_email_is_used(queue: Queue, clock: Clock) -> None:
    queue.enqueue(retry_policy="patient")
    assert tries(queue, clock) == seconds(300, 600)


def test_the_policy_of_the_template_is_used(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE email_templates SET retry_policy = 'development'")
    queue.enqueue()
    assert tries(queue, clock) == seconds(0.5, 1)


def test_the_policy_of_the_email_overrides_that_of_the_template(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE email_templates SET retry_policy = 'development'")
    queue.enqueue(retry_policy="patient")
    assert tries(queue, clock) == seconds(300, 600)


def test_the_default_policy_of_the_settings_is_used(queue: Queue, clock: Clock) -> None:
    queue.run("UPDATE mailgres.settings SET retry_policy = 'patient'")
    queue.enqueue()
    assert tries(queue, clock) == seconds(300, 600)


def test_an_email_may_override_count_and_delays(queue: Queue, clock: Clock) -> None:
    queue.enqueue(
        max_retries=5, retry_delay=timedelta(seconds=10), max_retry_delay=timedelta(seconds=50)
    )
    assert tries(queue, clock) == seconds(10, 20, 40, 50, 50)


def test_a_plain_insert_has_the_default_policy(queue: Queue, clock: Clock) -> None:
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email)"
        " VALUES ('welcome_user', 'ana@example.com')"
    )
    assert tries(queue, clock) == seconds(60, 300, 900)


@pytest.mark.parametrize("policy", ["stepped", "patient", "development"])
def test_calculate_next_retry_time_predicts_the_next_attempt(
    queue: Queue, clock: Clock, policy: str
) -> None:
    """The predicted time is the time of the next attempt."""
    queue.run("UPDATE mailgres.settings SET retry_policy = %s", policy)
    queue.enqueue()
    for retries in range(len(POLICIES[policy])):
        foretold = queue.value("SELECT calculate_next_retry_time(%s)", retries)
        email = queue.attempt("transient")
        assert email.next_retry_at == foretold
        clock.set(email.next_retry_at)


@pytest.mark.parametrize(
    ("retry_count", "minutes"),
    [(0, 1), (1, 5), (2, 15), (3, 15), (None, 1), (2**31 - 1, 15), (-(2**31), 1)],
)
def test_calculate_next_retry_time_returns_the_times_of_the_contract(
    queue: Queue, clock: Clock, retry_count: int | None, minutes: int
) -> None:
    expected = clock.now + timedelta(minutes=minutes)
    assert queue.value("SELECT calculate_next_retry_time(%s)", retry_count) == expected
