"""`mailgres worker --processes N`: several as one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.resend import ResendDouble, serve
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
    """Return whether it is there, and not only waiting to be buried."""
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
    """Without their parent the workers stop by themselves, and cleanly."""
    workers = children(fleet)
    fleet.popen.kill()
    fleet.popen.wait(DEADLINE)
    until(lambda: not any(map(runs, workers)), "both have ended")
    assert harness.value(SLEEPERS) == 0
    assert "the parent died" in fleet.log


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_workers_have_started_stops_them(
    harness: WorkerHarness, number: signal.Signals
) -> None:
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
    """The exit code must say so, although the others ended well."""
    victim = children(fleet)[0]
    os.kill(victim, signal.SIGSTOP)
    fleet.popen.terminate()
    until(lambda: harness.value(SLEEPERS) == 1, "the other one has ended")
    os.kill(victim, signal.SIGKILL)
    assert fleet.popen.wait(DEADLINE) == 1
    assert "Error: 1 of 2 workers did not end well\nHint: " in fleet.log


def test_the_parent_reports_an_error_once_and_starts_nothing_again(harness: WorkerHarness) -> None:
    """By the parent, and nothing is started again and again."""
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with harness.script(*BOTH, "--database-url", nowhere) as parent:
        assert parent.popen.wait(DEADLINE) == 1
    assert parent.log.startswith("Error: Cannot connect to 127.0.0.1:1/none")


@linux
def test_a_worker_that_gets_two_signals_finishes_its_emails(
    harness: WorkerHarness, connect: Connect
) -> None:
    """One from a service manager, one from its parent: emails in flight are finished."""
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
def test_a_signal_to_parent_and_children_counts_once(
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


def test_every_worker_of_a_fleet_gets_a_new_key_from_the_file(
    harness: WorkerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    text = 'providers = ["resend"]\nresend_api_url = "{}"\nresend_api_key = "{}"\n'
    with serve(ResendDouble(keys=["re_one", "re_two"])) as double:
        path.write_text(text.format(double.url, "re_one"))
        path.chmod(0o600)
        harness.variables["MAILGRES_CONFIG"] = str(path)
        harness.variables["MAILGRES_FROM_EMAIL"] = "noreply@example.com"
        with harness.script(*BOTH) as parent:
            until(lambda: harness.value(SLEEPERS) == 2, "both sleep")
            path.write_text(text.format(double.url, "re_two"))
            until(lambda: parent.log.count("has new settings") == 3, "the parent and both know")
            double.set(keys=["re_two"])
            harness.fill(20)
            harness.until_settled()
    assert harness.statuses() == {"sent": 20}
