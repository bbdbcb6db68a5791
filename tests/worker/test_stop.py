"""Asked to stop: what is in flight is finished, the rest is given back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from worker.harness import DEADLINE, WorkerHarness, until

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stopping_worker_finishes_what_is_in_flight(
    harness: WorkerHarness, tmp_path: Path, number: signal.Signals
) -> None:
    harness.use_double(idempotent=False)
    emails = harness.fill(10)
    gate = tmp_path / "gate"
    double = {"idempotent": False, "gate": str(gate)}
    with harness.worker(concurrency=2, double=double) as worker:
        until(lambda: len(harness.ledger.entries("inside")) == 2, "two calls are under way")
        worker.popen.send_signal(number)
        until(lambda: harness.statuses().get("pending") == 8, "the rest is given back")
        gate.touch()
        reported = worker.summary()
    assert (reported["claimed"], reported["sent"], reported["given_back"]) == (10, 2, 8)
    assert harness.ledger.accepted().total() == 2
    assert harness.statuses() == {"sent": 2, "pending": 8}
    # Ready at once for the next one, as if nothing had been.
    ready = "SELECT count(*) FROM email_queue WHERE ready AND lease_token IS NULL AND retries = 0"
    assert harness.value(ready + " AND lease_losses = 0") == 8
    harness.work_off(double={"idempotent": False})
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)


def test_a_stopping_worker_does_not_outlive_its_grace(harness: WorkerHarness) -> None:
    """A call that does not return holds nobody up for longer than the grace."""
    harness.use_double()
    harness.fill(3)
    with harness.worker(concurrency=1, grace=0.5, double={"hang": "inside"}) as worker:
        until(lambda: harness.ledger.entries("inside"), "a call is under way")
        reported = worker.stop()
    assert (reported["sent"], reported["given_back"]) == (0, 2)
    assert harness.statuses() == {"pending": 2, "sending": 1}
    harness.work_off()
    assert harness.statuses() == {"sent": 3}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_a_stopping_worker(
    harness: WorkerHarness, number: signal.Signals
) -> None:
    harness.use_double()
    harness.fill(3)
    with harness.worker(concurrency=1, double={"hang": "inside"}) as worker:
        until(lambda: harness.ledger.entries("inside"), "a call is under way")
        worker.popen.send_signal(number)
        until(lambda: harness.statuses().get("pending") == 2, "the rest is given back")
        worker.popen.send_signal(number)
        assert worker.popen.wait(DEADLINE) == 128 + number
    harness.work_off()
    assert harness.statuses() == {"sent": 3}
