"""`mailgres worker --processes N`: several as one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Connect
from worker.bench import DEADLINE, Bench, Process, until

SLEEPERS = "SELECT count(*) FROM mailgres.sleepers"
BLOCKED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


@pytest.fixture
def fleet(bench: Bench) -> Iterator[Process]:
    """Two workers that have nothing to do."""
    with bench.script("worker", "--processes", "2") as parent:
        until(lambda: bench.value(SLEEPERS) == 2, "both sleep")
        yield parent


def children(parent: Process) -> list[int]:
    """The workers among its children; the other one is the interpreter's own tracker."""
    pid = parent.popen.pid
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed if "spawn_main" in command(child)]


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:  # it has just ended
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the children in /proc")
def test_one_that_dies_is_replaced(bench: Bench, fleet: Process) -> None:
    before = children(fleet)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(children(fleet)) == 2 and before[0] not in children(fleet), "a new one")
    bench.fill(20)
    until(lambda: bench.statuses() == {"sent": 20}, "all is sent")
    fleet.popen.terminate()
    assert fleet.popen.wait(DEADLINE) == 0


def test_ctrl_c_finishes_what_is_in_flight(bench: Bench, fleet: Process, connect: Connect) -> None:
    """The terminal's signal reaches parent and children alike; it counts once."""
    inbox = connect(autocommit=False)
    inbox.execute("LOCK TABLE mailgres.captured")
    email = bench.enqueue()
    until(lambda: bench.value(BLOCKED), "a call is under way")
    os.killpg(fleet.popen.pid, signal.SIGINT)
    until(lambda: bench.value(SLEEPERS) < 2, "the idle one has stopped")
    inbox.rollback()
    assert fleet.popen.wait(DEADLINE) == 0
    assert bench.status_of(email) == "sent"
