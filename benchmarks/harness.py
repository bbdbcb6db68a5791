"""Shared by all benchmarks: a real server with fsync on, fair sampling, a result file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import __version__, embedded, migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results"


@contextmanager
def server(*, durable: bool = True) -> Iterator[str]:
    """Yield a fresh embedded server with its defaults: fsync and synchronous_commit on.

    A trial that measures nothing need not be `durable`.
    """
    with tempfile.TemporaryDirectory(prefix="mailgres-bench-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o711)  # for the account of root's server
        settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
        if not durable:
            settings["synchronous_commit"] = "off"
        with embedded.server(Path(place) / "data", settings=settings) as url:
            yield url


def migrated(url: str, name: str) -> str:
    """Create a migrated database on the server; return its URL."""
    target = embedded.database(url, name)
    migrate.upgrade(target)
    return target


def connect(url: str) -> psycopg.Connection:
    """Return a connection that prepares statements at the first use, as in a busy application."""
    connection = psycopg.connect(url, autocommit=True)
    connection.prepare_threshold = 0
    return connection


def is_trial(about: str | None) -> bool:
    """Read the arguments of a benchmark: `--trial` takes small numbers and stores no result."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trial", action="store_true", help="small numbers; stores no result")
    return bool(parser.parse_args().trial)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that the call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Stopwatch:
    """Times of named steps."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Time the `with` block."""
        start = time.perf_counter()
        yield
        self.times.setdefault(step, []).append(time.perf_counter() - start)


def in_turn(rounds: int, *calls: Callable[[], object]) -> list[list[float]]:
    """Time each call in turn, so that noise of the machine affects all of them alike."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seen in zip(calls, times, strict=True):
            seen.append(timed(call))
    return times


def milliseconds(times: list[float]) -> dict[str, float]:
    """Return the median and spread of times."""
    ordered = sorted(times)
    return {
        "median_ms": round(statistics.median(ordered) * 1000, 3),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)] * 1000, 3),
        "samples": len(ordered),
    }


def machine(connection: psycopg.Connection) -> dict[str, Any]:
    """Describe the machine."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "postgresql": connection.info.server_version,
        "python": platform.python_version(),
        "mailgres": __version__,
    }


def report(name: str, connection: psycopg.Connection, result: dict[str, Any]) -> None:
    """Print the result, and store it unless it is a trial's, or peers are missing."""
    whole = {
        "benchmark": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(connection),
        **result,
    }
    text = json.dumps(whole, indent=2)
    print(text)
    if not (result.get("trial") or result.get("missing_peers")):
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")
