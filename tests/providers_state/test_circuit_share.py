"""Failed calls open the circuit by their share of all calls, or when no other call is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers_state.harness import ACCOUNT, HOUR, MINUTE, SECOND, ProviderHarness
from support.postgres import Connect
from support.queue import Clock, report

FAULT = ("transient", ACCOUNT)
AMBIGUOUS = ("ambiguous", ACCOUNT)
SENT: tuple[str, dict[str, Any]] = ("sent", {})
REFUSED: tuple[str, dict[str, Any]] = ("permanent", {"code": "no_mailbox"})
OWN: tuple[str, dict[str, Any]] = ("transient", {"code": "greylisted"})
"""A fault of the email, which says nothing about the provider."""

Reported = tuple[str, dict[str, Any]]
Calls = list[tuple[Reported, int]]


def calls_of(claimed: Sequence[Any]) -> list[list[Any]]:
    """Return what was claimed, call by call."""
    key = lambda email: str(email.batch_id or email.id)  # noqa: E731
    return [list(group) for _, group in groupby(sorted(claimed, key=key), key)]


def report_calls(
    harness: ProviderHarness, outcomes: Sequence[Reported], emails: int | None = None
) -> Calls:
    """Make calls and report them all at once; returns each call's outcome and its emails."""
    harness.put(emails or len(outcomes))
    calls = calls_of(harness.claim(limit=emails or len(outcomes)))
    reported = [(outcomes[n % len(outcomes)], call) for n, call in enumerate(calls)]
    harness.finish(
        *(
            report(email, outcome, batch_size=len(call) if len(call) > 1 else None, **more)
            for (outcome, more), call in reported
            for email in call
        )
    )
    harness.run("DELETE FROM email_queue")
    return [(outcome, len(call)) for outcome, call in reported]


def test_six_faults_in_762_calls_leave_a_busy_circuit_closed(
    harness: ProviderHarness, clock: Clock
) -> None:
    for _ in range(6):
        report_calls(harness, [FAULT, *[SENT] * 126])
        clock.forward(9 * SECOND)
    assert (harness.circuit(), harness.provider().failures) == ("closed", 0)


def test_faults_that_are_a_tenth_of_the_calls_of_a_minute_open_the_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    for number in range(5):
        report_calls(harness, [FAULT, *[SENT] * 9])
        assert harness.circuit() == ("closed" if number < 4 else "open")
        clock.forward(SECOND)


def test_faults_that_are_less_than_a_tenth_of_the_calls_leave_the_circuit_closed(
    harness: ProviderHarness, clock: Clock
) -> None:
    for _ in range(20):
        report_calls(harness, [FAULT, *[SENT] * 10])
        clock.forward(SECOND)
    assert harness.circuit() == "closed"


def test_an_answer_among_five_failed_calls_of_a_report_restarts_the_count(
    harness: ProviderHarness, clock: Clock
) -> None:
    report_calls(harness, [SENT] * 95)
    report_calls(harness, [*[FAULT] * 5, SENT])
    assert (harness.circuit(), harness.provider().failures) == ("closed", 0)
    clock.forward(HOUR)
    report_calls(harness, [FAULT] * 4)
    assert harness.circuit() == "closed"
    report_calls(harness, [FAULT])
    assert harness.circuit() == "open"


def test_five_failed_calls_of_a_report_without_an_answer_open_a_busy_circuit(
    harness: ProviderHarness, clock: Clock
) -> None:
    report_calls(harness, [SENT] * 200)
    clock.forward(SECOND)
    report_calls(harness, [FAULT] * 5)
    assert harness.circuit() == "open"


@pytest.mark.usefixtures("clock")
def test_the_share_is_the_same_whether_the_counts_are_folded_or_not(
    harness: ProviderHarness,
) -> None:
    report_calls(harness, [SENT] * 44)
    while harness.value("SELECT mailgres.fold_rollups()"):
        pass
    for _ in range(4):
        report_calls(harness, [FAULT, SENT])
        harness.run("SELECT mailgres.fold_rollups()")
    assert harness.circuit() == "closed"
    report_calls(harness, [FAULT, SENT])
    assert harness.circuit() == "closed"  # 5 of 54
    report_calls(harness, [FAULT, SENT])
    assert harness.circuit() == "open"  # 6 of 56


def test_calls_before_the_window_do_not_count_as_calls_of_that_time(
    harness: ProviderHarness, clock: Clock
) -> None:
    report_calls(harness, [SENT] * 500)
    clock.forward(2 * MINUTE)
    for _ in range(5):
        report_calls(harness, [FAULT, SENT])
    assert harness.circuit() == "open"


@pytest.mark.usefixtures("clock")
def test_the_failure_share_belongs_to_its_provider(harness: ProviderHarness) -> None:
    harness.alter("first", failure_share="0.5")
    for _ in range(10):
        report_calls(harness, [FAULT, SENT, SENT])
    assert harness.circuit() == "closed"
    harness.alter("first", failure_share="0")
    report_calls(harness, [FAULT, *[SENT] * 100])
    assert harness.circuit() == "open"


@pytest.mark.usefixtures("clock")
def test_the_calls_of_another_provider_make_no_share_smaller(harness: ProviderHarness) -> None:
    harness.add("second")
    harness.lead("second")
    report_calls(harness, [SENT] * 200)
    harness.lead("first")
    for _ in range(5):
        report_calls(harness, [FAULT, SENT])
    assert (harness.circuit(), harness.circuit("second")) == ("open", "closed")


def test_workers_that_report_at_the_same_time_are_counted_together(
    committed: ProviderHarness, connect: Connect
) -> None:
    committed.put(100)
    workers = [ProviderHarness(connect()) for _ in range(5)]
    claims = [worker.claim(f"worker-{n}", limit=20) for n, worker in enumerate(workers)]
    for worker, claimed in zip(workers, claims, strict=True):
        outcomes = [FAULT, FAULT, *[SENT] * 18]
        worker.finish(
            *(
                report(email, outcome, **more)
                for email, (outcome, more) in zip(claimed, outcomes, strict=True)
            )
        )
    # 10 of 100; after the second worker it had been 4 of 40, too few to count
    assert committed.circuit() == "open"


@pytest.mark.usefixtures("clock")
def test_a_report_without_a_fault_reads_no_counts(harness: ProviderHarness) -> None:
    """The share costs nothing while nothing fails: the counts could not even be read."""
    harness.run("ALTER VIEW mailgres.counted_by_minute RENAME TO hidden")
    report_calls(harness, [SENT, REFUSED, OWN])
    assert harness.circuit() == "closed"


@dataclass
class Model:
    """What the circuit has to do, counted from a list of all calls ever made."""

    calls: list[tuple[datetime, bool, int]] = field(default_factory=list)
    failed_at: list[datetime] = field(default_factory=list)
    row: int = 0

    def opens(self, now: datetime, calls: Calls) -> bool:
        """Add the calls of a report; return whether they open the circuit."""
        bad = [n for reported, n in calls if reported in (FAULT, AMBIGUOUS)]
        answered = any(reported in (SENT, REFUSED) for reported, _ in calls)
        self.calls += [(now, reported in (FAULT, AMBIGUOUS), n) for reported, n in calls]
        self.failed_at += [now] * len(bad)
        self.row = 0 if answered else self.row + len(bad)
        lately = [at for at in self.failed_at if at > now - MINUTE]
        since = (now - MINUTE).replace(second=0, microsecond=0)
        failed = sum(n for at, fails, n in self.calls if at >= since and fails)
        emails = sum(n for at, _, n in self.calls if at >= since)
        by_share = len(lately) >= 5 and 10 * failed >= emails
        return bool(bad) and (self.row >= 5 or by_share)

    def reset(self) -> None:
        """An operator closes the circuit."""
        self.failed_at, self.row = [], 0


OUTCOMES = st.sampled_from([FAULT, AMBIGUOUS, SENT, SENT, SENT, SENT, REFUSED, OWN])
BUSY = st.integers(1, 14).map(lambda n: [FAULT, *[SENT] * n])
"""A fault among answers, around a tenth of them."""
BURST = st.tuples(st.integers(1, 6), st.integers(0, 60)).map(
    lambda n: [*[AMBIGUOUS] * n[0], *[SENT] * n[1]]
)
REPORTS = st.one_of(BUSY, BUSY, BURST, st.lists(OUTCOMES, min_size=1, max_size=12))
REPORT = st.tuples(st.just("report"), REPORTS, st.integers(1, 40))
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 2, 5, 7, 19, 30, 59, 60, 61, 119]))
STEPS = st.one_of(
    REPORT, REPORT, REPORT, WAIT, st.tuples(st.just("fold_rollups"), st.integers(1, 20))
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=20, max_size=50), batch=st.sampled_from([1, 7]))
def test_after_any_history_the_circuit_is_as_a_list_of_all_calls_says(
    harness: ProviderHarness, clock: Clock, steps: list[Any], batch: int
) -> None:
    model = Model()
    with harness.conn.transaction(force_rollback=True):
        clock.set(clock.now.replace(microsecond=0) + timedelta(hours=1))
        harness.add("batches", batch=7)
        name = "first" if batch == 1 else "batches"
        harness.lead(name)
        for step in steps:
            if step[0] == "wait":
                clock.forward(step[1] * SECOND)
            elif step[0] == "fold_rollups":
                harness.run("SELECT mailgres.fold_rollups(%s)", step[1])
            else:
                calls = report_calls(harness, step[1], None if batch == 1 else step[2])
                opens = model.opens(clock.now, calls)
                assert harness.circuit(name) == ("open" if opens else "closed")
                if opens:
                    harness.run("SELECT mailgres.reset_provider(%s)", name)
                    model.reset()


def test_the_failure_share_is_between_0_and_1(harness: ProviderHarness) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="failure_share"):
        harness.alter("first", failure_share="1.5")
