"""Asked to stop: what is in flight is finished, the rest is given back."""

from __future__ import annotations

import signal

import pytest

from worker.bench import DEADLINE, Bench, until

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
def test_finishes_what_is_in_flight(bench: Bench, number: signal.Signals) -> None:
    bench.use_double(idempotent=False)
    emails = bench.fill(10)
    double = {"idempotent": False, "delay": 1.0}
    with bench.worker(concurrency=2, double=double) as worker:
        until(lambda: len(bench.ledger.entries("inside")) == 2, "two calls are under way")
        told = worker.stop(number)
    assert (told["claimed"], told["sent"], told["given_back"]) == (10, 2, 8)
    assert bench.ledger.accepted().total() == 2
    assert bench.statuses() == {"sent": 2, "pending": 8}
    # Ready at once for the next one, as if nothing had been.
    ready = "SELECT count(*) FROM email_queue WHERE ready AND lease_token IS NULL AND retries = 0"
    assert bench.value(ready + " AND lease_losses = 0") == 8
    bench.work_off(double={"idempotent": False})
    assert bench.ledger.accepted() == dict.fromkeys(emails, 1)


def test_grace_ends(bench: Bench) -> None:
    """A call that does not return holds nobody up for longer than the grace."""
    bench.use_double()
    bench.fill(3)
    with bench.worker(concurrency=1, grace=0.5, double={"hang": "inside"}) as worker:
        until(lambda: bench.ledger.entries("inside"), "a call is under way")
        told = worker.stop()
    assert (told["sent"], told["given_back"]) == (0, 2)
    assert bench.statuses() == {"pending": 2, "sending": 1}
    bench.work_off()
    assert bench.statuses() == {"sent": 3}


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal(bench: Bench, number: signal.Signals) -> None:
    bench.use_double()
    bench.fill(3)
    with bench.worker(concurrency=1, double={"hang": "inside"}) as worker:
        until(lambda: bench.ledger.entries("inside"), "a call is under way")
        worker.popen.send_signal(number)
        until(lambda: bench.statuses().get("pending") == 2, "the rest is given back")
        worker.popen.send_signal(number)
        assert worker.popen.wait(DEADLINE) == 128 + number
    bench.work_off()
    assert bench.statuses() == {"sent": 3}
