"""`mailgres worker --processes N`: several as one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Connect
from worker.harness import BLOCKED_CALLS, DEADLINE, Process, WorkerHarness, until

SLEEPERS = "SELECT count(*) FROM mailgres.sleepers"
BOTH = ("worker", "--processes", "2")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for the children in /proc")


@pytest.fixture
def fleet(harness: WorkerHarness) -> Iterator[Process]:
    """Two workers that have nothing to do."""
    with harness.script(*BOTH) as parent:
        until(lambda: harness.value(SLEEPERS) == 2, "both sleep")
        yield parent


def children(parent: Process) -> list[int]:
    """The workers among its children; the other one is the interpreter's own tracker."""
    pid = parent.popen.pid
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed if "spawn_main" in command(child)]


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""


def runs(pid: int) -> bool:
    """Whether it is there, and not only waiting to be buried."""
    return bool(command(str(pid)))


@linux
def test_a_worker_that_dies_is_replaced(harness: WorkerHarness, fleet: Process) -> None:
    before = children(fleet)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len({*children(fleet)} - {before[0]}) == 2, "a new one")
    assert "a worker died with -9" in fleet.log
    harness.fill(20)
    until(lambda: harness.statuses() == {"sent": 20}, "all is sent")
    fleet.popen.terminate()
    assert fleet.popen.wait(DEADLINE) == 0


@linux
def test_workers_end_when_their_parent_is_killed(harness: WorkerHarness, fleet: Process) -> None:
    """Nobody is left who would stop the workers: they end by themselves, and in order."""
    workers = children(fleet)
    fleet.popen.kill()
    fleet.popen.wait(DEADLINE)
    until(lambda: not any(map(runs, workers)), "both have ended")
    assert harness.value(SLEEPERS) == 0
    assert "the parent died" in fleet.log


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_before_it_has_started(harness: WorkerHarness, number: signal.Signals) -> None:
    """The workers are there, but cannot handle a signal yet: it waits until they can."""
    with harness.script(*BOTH) as parent:
        until(lambda: children(parent), "there is a worker")
        workers = children(parent)
        os.killpg(parent.popen.pid, number)
        assert parent.popen.wait(DEADLINE) == 0, parent.log
        assert not any(map(runs, workers))
    assert "Traceback" not in parent.log
    assert harness.value(SLEEPERS) == 0


@linux
def test_a_second_signal_ends_the_parent_and_its_workers(
    harness: WorkerHarness, fleet: Process
) -> None:
    """The parent does not leave without its workers."""
    workers = children(fleet)
    os.kill(workers[0], signal.SIGSTOP)  # this one will not end by itself
    fleet.popen.terminate()
    until(lambda: harness.value(SLEEPERS) == 1, "the other one has ended")
    fleet.popen.terminate()
    assert fleet.popen.wait(DEADLINE) == 128 + signal.SIGTERM
    assert not any(map(runs, workers))


@linux
def test_the_parent_reports_a_worker_that_failed(harness: WorkerHarness, fleet: Process) -> None:
    """Somebody ought to know, though the others did."""
    victim = children(fleet)[0]
    os.kill(victim, signal.SIGSTOP)
    fleet.popen.terminate()
    until(lambda: harness.value(SLEEPERS) == 1, "the other one has ended")
    os.kill(victim, signal.SIGKILL)
    assert fleet.popen.wait(DEADLINE) == 1
    assert "Error: 1 of 2 workers did not end well\nHint: " in fleet.log


def test_what_is_wrong_is_said_once(harness: WorkerHarness) -> None:
    """By the parent, and nothing is started again and again."""
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with harness.script(*BOTH, "--database-url", nowhere) as parent:
        assert parent.popen.wait(DEADLINE) == 1
    assert parent.log.startswith("Error: Cannot connect to 127.0.0.1:1/none")


@linux
def test_a_worker_that_is_told_twice(harness: WorkerHarness, connect: Connect) -> None:
    """By a service manager, and by its parent: what is in flight is finished all the same."""
    inbox = connect(autocommit=False)
    with harness.script(*BOTH, "--log-level", "info") as fleet:
        until(lambda: harness.value(SLEEPERS) == 2, "both sleep")
        inbox.execute("LOCK TABLE mailgres.captured")
        email = harness.enqueue()
        until(lambda: harness.value(BLOCKED_CALLS), "a call is under way")
        for worker in children(fleet):
            os.kill(worker, signal.SIGTERM)
        until(lambda: fleet.log.count("stopping") >= 2, "both have heard it")
        fleet.popen.terminate()
        until(lambda: len(children(fleet)) == 1, "the busy one is left")
        inbox.rollback()
        assert fleet.popen.wait(DEADLINE) == 0, fleet.log
    assert harness.status_of(email) == "sent"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_them(
    harness: WorkerHarness, fleet: Process, connect: Connect, number: signal.Signals
) -> None:
    """A terminal's Ctrl-C and a service manager's SIGTERM reach parent and children alike.

    It counts once: what is in flight is finished.
    """
    inbox = connect(autocommit=False)
    inbox.execute("LOCK TABLE mailgres.captured")
    email = harness.enqueue()
    until(lambda: harness.value(BLOCKED_CALLS), "a call is under way")
    os.killpg(fleet.popen.pid, number)
    until(lambda: harness.value(SLEEPERS) < 2, "the idle one has stopped")
    inbox.rollback()
    assert fleet.popen.wait(DEADLINE) == 0
    assert harness.status_of(email) == "sent"
