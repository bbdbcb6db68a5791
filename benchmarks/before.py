"""The drain of this tree against that of an earlier commit, in turn, on one server.

The files of the commit come from git. Its worker and its schema are its own; what is compared is
the processor time of the worker and of its backends for each email, which the load of the machine
hardly changes, and the time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import draining, harness
from mailgres import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

ROOT = Path(__file__).parents[1]
BACKENDS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND pid <> pg_backend_pid()
"""
MIGRATE = "import os; from mailgres import migrate; migrate.upgrade(os.environ['DATABASE_URL'])"


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process: the load of the machine hardly changes it.

    `stat` counts in hundredths of a second, `schedstat` in nanoseconds, for each thread.
    """
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


@contextmanager
def tree(commit: str) -> Iterator[dict[str, str]]:
    """Yield the variables that make Python use the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="mailgres-before-") as place:
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", commit],
            check=True,
            capture_output=True,
        )
        subprocess.run(["tar", "-x", "-C", place], check=True, input=archive.stdout)
        # Without the current directory, which would come first.
        yield {"PYTHONPATH": f"{place}/src:{place}", "PYTHONSAFEPATH": "1"}


class Side:
    """A database with a worker process: of this tree, or of another by its variables."""

    def __init__(self, server: str, name: str, variables: dict[str, str]) -> None:
        url = embedded.database(server, name)
        subprocess.run(
            [sys.executable, "-c", MIGRATE],
            check=True,
            env={**os.environ, "DATABASE_URL": url, **variables},
        )
        self.url = url
        self.conn = harness.connect(url)
        self.worker = draining.Drainer(url, **variables)
        self.seconds: list[float] = []
        self.worker_cpu: list[float] = []
        self.backend_cpu: list[float] = []

    def drain(self, emails: int) -> None:
        """Fill the queue and drain it."""
        draining.fill(self.conn, emails)
        before = self._backends()
        seconds, (reported,) = draining.drain([self.worker], emails)
        after = self._backends()
        self.seconds.append(seconds)
        self.worker_cpu.append(reported["cpu_seconds"] / emails)
        used = sum(seen - before.get(process, 0.0) for process, seen in after.items())
        self.backend_cpu.append(used / emails)

    def figures(self, emails: int) -> dict[str, float]:
        """Return the medians."""
        return {
            "per_s": round(emails / statistics.median(self.seconds)),
            "worker_cpu_us_per_email": round(statistics.median(self.worker_cpu) * 1e6, 1),
            "backend_cpu_us_per_email": round(statistics.median(self.backend_cpu) * 1e6, 1),
        }

    def close(self) -> None:
        """End the worker."""
        self.worker.close()
        self.conn.close()

    def _backends(self) -> dict[int, float]:
        return {process: cpu_seconds(process) for (process,) in self.conn.execute(BACKENDS)}


def compare(
    server: str, commit: str, emails: int, rounds: int, report: Callable[[psycopg.Connection], None]
) -> dict[str, Any]:
    """Drain in turn: the commit, this tree, and this tree after `report` recorded events."""
    with ExitStack() as stack:
        variables = stack.enter_context(tree(commit))
        sides = {
            "before": Side(server, "before", variables),
            "events_off": Side(server, "events_off", {}),
            "events_on": Side(server, "events_on", {}),
        }
        for side in sides.values():
            stack.callback(side.close)
            side.drain(emails)  # warms up, and is not counted
        for number in range(rounds):
            report(sides["events_on"].conn)
            for name in sorted(sides, reverse=bool(number % 2)):
                sides[name].drain(emails)
    found = {name: _without_first(side).figures(emails) for name, side in sides.items()}
    cpu = {name: _cpu(one) for name, one in found.items()}
    return {
        "commit": commit,
        "emails": emails,
        "rounds": rounds,
        **found,
        "cpu_events_off_against_before": round(cpu["events_off"] / cpu["before"], 3),
        "cpu_events_on_against_off": round(cpu["events_on"] / cpu["events_off"], 3),
    }


def _without_first(side: Side) -> Side:
    for times in (side.seconds, side.worker_cpu, side.backend_cpu):
        del times[0]
    return side


def _cpu(figures: dict[str, float]) -> float:
    return figures["worker_cpu_us_per_email"] + figures["backend_cpu_us_per_email"]
