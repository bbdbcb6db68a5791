"""Resend shows a fault to a real worker: what becomes of the emails, and what had gone out.

Every fault once for emails that go alone and once for a batch; then Resend works again, and all
that can still be sent is sent exactly once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from doubles.resend import Fault, ResendDouble
from doubles.resend_faults import FAULTS, OF_THE_ACCOUNT, REFUSALS, named
from e2e.harness import ORDINARY, URGENT, E2eHarness, accepted, once_each
from worker.harness import until

MODES = {"single": URGENT, "batch": ORDINARY}
PATHS = {"single": "/emails", "batch": "/emails/batch"}
AFTER = {
    # class of the fault: status, error_class, retries spent by one alone and by one of a batch
    "rate": ("pending", "rate", 0, 0),
    "quota": ("pending", "quota", 0, 0),
    "config": ("pending", "config", 0, 0),
    "transient": ("pending", "transient", 1, 1),
    "ambiguous": ("pending", "ambiguous", 1, 0),
    "uncertain": ("failed", "ambiguous", 0, 0),
}
"""The state after the first attempt. An uncertain batch stays together and spends nothing."""
SPENDS_NOTHING_IN_A_BATCH = {"concurrent"}

each_mode = pytest.mark.parametrize("mode", MODES)


@each_mode
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_resend_has_its_outcome(
    name: str, mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    fault, verdict = FAULTS[name]
    resend.add_faults(replace(fault, times=-1, path=PATHS[mode]))
    emails = harness.send(priority=MODES[mode])

    status, error_class, alone, together = AFTER[verdict]
    spent = alone if mode == "single" else together
    if mode == "batch" and name in SPENDS_NOTHING_IN_A_BATCH:
        spent = 0
    assert harness.state() == {(status, spent, error_class): 3}
    assert accepted(resend) == (once_each(emails) if fault.accepts else {})
    opens = verdict == "config" and name in OF_THE_ACCOUNT
    provider = harness.provider("resend")
    assert provider.circuit == ("open" if opens else "closed")
    assert bool(provider.circuit_reason) == opens
    assert provider.limited_by == (verdict if verdict in ("rate", "quota") else None)

    resend.clear_faults()
    harness.work_until_settled()
    if verdict == "uncertain":
        assert harness.state() == {("failed", 0, "ambiguous"): 3}
        assert accepted(resend) == {}
    else:
        assert harness.state() == {("sent", spent, None): 3}
        assert accepted(resend) == once_each(emails)
        assert harness.provider("resend").circuit == "closed"


@each_mode
@pytest.mark.parametrize("name", REFUSALS)
def test_an_email_that_resend_refuses_for_good_harms_no_other(
    name: str, mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """One alone is dead at once. Those of a batch go again, each alone: they harm no other."""
    resend.add_faults(replace(REFUSALS[name], times=-1, path=PATHS[mode]))
    emails = harness.send(priority=MODES[mode])
    if mode == "single":
        assert harness.state() == {("failed", 0, "permanent"): 3}
        assert {harness.email(email).dead_reason for email in emails} == {"permanent"}
        assert all(harness.email(email).error_message for email in emails)
        resend.clear_faults()
        harness.clock.forward(timedelta(days=1))
        harness.work()
        assert accepted(resend) == {}
    else:
        harness.work_until_settled()
        assert harness.state() == {("sent", 0, None): 3}
        assert accepted(resend) == once_each(emails)
        assert resend.calls == {"/emails/batch": 1, "/emails": 3}
    assert harness.provider("resend").circuit == "closed"


LATE = {
    "no answer": Fault(delay=1.0, times=-1),
    "no answer, but taken": Fault(delay=1.0, accepts=True, times=-1),
    "an answer byte by byte": Fault(status=0, drip=0.1, accepts=True, times=-1),
}


@each_mode
@pytest.mark.parametrize("name", LATE)
def test_an_answer_of_resend_after_the_timeout_is_not_sent_twice(
    name: str, mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    resend.add_faults(replace(LATE[name]))
    harness.set(provider_timeout="200ms")
    emails = harness.send(priority=MODES[mode])
    assert harness.state() == {("pending", 1 if mode == "single" else 0, "ambiguous"): 3}
    resend.clear_faults()
    harness.set(provider_timeout="30s")
    harness.work_until_settled()
    assert set(harness.statuses()) == {"sent"}
    assert accepted(resend) == once_each(emails)


@each_mode
@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
def test_a_worker_obeys_retry_after_of_resend(
    mode: str, harness: E2eHarness, resend: ResendDouble, *, as_date: bool
) -> None:
    """The provider is left alone until then; a worker that looks meanwhile makes no call."""
    start = datetime.now(UTC).replace(microsecond=0)
    date = start + timedelta(seconds=90)
    said = format_datetime(date, usegmt=True) if as_date else "90"
    fault = named(429, "rate_limit_exceeded")
    resend.add_faults(replace(fault, headers={"retry-after": said}, times=-1))
    emails = harness.send(priority=MODES[mode])
    until = harness.provider("resend").limited_until
    # by the clock of the database, which is up to a second ahead here; dates are whole seconds
    second = timedelta(seconds=1)
    assert date - second <= until <= datetime.now(UTC) + (date - start) + second
    assert harness.state() == {("pending", 0, "rate"): 3}
    assert harness.events_of("resend") == ["RateLimited"]

    calls = resend.calls.total()
    harness.clock.set(until - timedelta(seconds=1))
    harness.work()
    assert resend.calls.total() == calls
    resend.clear_faults()
    harness.clock.set(until + timedelta(seconds=1))
    harness.work()
    assert harness.state() == {("sent", 0, None): 3}
    assert accepted(resend) == once_each(emails)


@each_mode
@pytest.mark.parametrize("usage", [False, True], ids=["silent", "with usage"])
def test_the_daily_quota_of_resend_spends_no_retry(
    mode: str, harness: E2eHarness, resend: ResendDouble, *, usage: bool
) -> None:
    """Four a day: what is too much goes the next day, and has spent nothing."""
    resend.set(daily=4, usage=usage)
    first = harness.send(3, priority=MODES[mode])
    assert harness.state() == {("sent", 0, None): 3}
    second = harness.send(3, priority=MODES[mode])
    assert harness.statuses()["pending"] >= 2
    assert harness.provider("resend").limited_by == "quota"
    assert harness.value("SELECT max(retries) FROM email_queue") == 0

    resend.set(ahead=25 * 3600.0)
    harness.clock.forward(timedelta(hours=25))
    harness.work_until_settled()
    assert harness.state() == {("sent", 0, None): 6}
    assert accepted(resend) == once_each(first + second)


@each_mode
@pytest.mark.parametrize("reported", ["invalid_api_key", "validation_error"])
def test_a_wrong_key_of_resend_spends_no_retry(
    reported: str, mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """The circuit opens and says why; no row is harmed, however long it takes."""
    resend.set(wrong_key=reported)
    harness.use_resend(resend, "re_wrong")
    emails = harness.send(priority=MODES[mode])
    before = harness.provider("resend")
    assert before.circuit == "open"
    assert reported in before.circuit_reason
    assert "API key" in before.circuit_reason
    for _ in range(5):  # an hour of probes, farther and farther apart
        harness.clock.set(harness.provider("resend").circuit_until + timedelta(seconds=1))
        harness.work()
        assert harness.provider("resend").circuit == "open"
    assert harness.provider("resend").circuit_since - before.circuit_since > timedelta(hours=1)
    assert harness.state() == {("pending", 0, "config"): 3}

    harness.use_resend(resend)
    harness.work_until_settled()
    assert harness.state() == {("sent", 0, None): 3}
    assert accepted(resend) == once_each(emails)
    assert harness.events_of("resend")[-1] == "CircuitBreakerClosed"


@each_mode
def test_an_unverified_domain_at_resend_parks_the_email(
    mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """Only the emails of that domain wait; those of others go."""
    resend.set(unverified=["new.example.com"])
    parked = [harness.enqueue(priority=MODES[mode], from_email="a@new.example.com") for _ in "abc"]
    sent = harness.send(priority=MODES[mode])
    harness.work_until_nothing_is_due()
    assert accepted(resend) == once_each(sent)
    assert harness.provider("resend").circuit == "closed"
    assert {harness.status_of(email) for email in parked} == {"pending"}
    assert all(harness.email(email).parked_since for email in parked)
    assert {harness.email(email).error_class for email in parked} == {"config"}

    resend.set(unverified=[])
    harness.work_until_settled()
    assert accepted(resend) == once_each(sent + parked)
    assert harness.state() == {("sent", 0, None): 6}


@each_mode
def test_refused_connections_to_resend_open_the_circuit(
    mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """Connections are refused: the circuit opens, and later emails wait and spend nothing."""
    harness.set(resend_api_url="http://127.0.0.1:9", batch_size="2")
    tried = harness.send(10, priority=MODES[mode])
    provider = harness.provider("resend")
    assert provider.circuit == "open"
    assert provider.circuit_reason.startswith("no_connection")
    later = harness.send(5, priority=MODES[mode])
    assert harness.state() == {("pending", 1, "transient"): 10, ("pending", 0, None): 5}
    harness.use_resend(resend)
    harness.work_until_settled()
    assert harness.state() == {("sent", 1, None): 10, ("sent", 0, None): 5}
    assert accepted(resend) == once_each(tried + later)


@each_mode
def test_a_resend_call_that_is_still_running_is_not_sent_twice(
    mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """The first call is still running when the second starts: 409, and one email is sent."""
    resend.set(latency=3.0)
    harness.set(provider_timeout="500ms")
    emails = harness.send(1 if mode == "single" else 3, priority=MODES[mode])
    harness.clock.set(harness.value("SELECT max(next_retry_at) FROM email_queue"))
    harness.set(provider_timeout="30s")
    harness.work()
    assert "concurrent_idempotent_requests" in set(harness.codes())
    until(lambda: len(accepted(resend)) == len(emails), "the first call has ended")
    resend.set(latency=0.0)
    harness.work_until_settled()
    assert set(harness.statuses()) == {"sent"}
    assert accepted(resend) == once_each(emails)


@each_mode
def test_a_key_used_with_other_content_makes_the_email_uncertain(
    mode: str, harness: E2eHarness, resend: ResendDouble
) -> None:
    """An earlier attempt arrived, and since then the sender changed: never a new key."""
    resend.add_faults(Fault(reset=True, accepts=True, times=-1))
    emails = harness.send(priority=MODES[mode])
    resend.clear_faults()
    harness.set(from_email="Other <other@example.com>")
    harness.work_until_settled()
    assert harness.state().keys() == {("failed", 1 if mode == "single" else 0, "ambiguous")}
    assert {harness.email(email).dead_reason for email in emails} == {"uncertain"}
    assert set(harness.codes()) == {"invalid_idempotent_request"}
    assert accepted(resend) == once_each(emails)
