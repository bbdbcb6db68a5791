"""Many short soaks, each from its seed: other emails, faults and disturbances every time.

    python -m e2e.soak_seeds --count 100 [--first 1] [--at-once 2] [--results FILE]

Appends a line of JSON for each seed to the file, with the commit that was tested. A seed that is
in the file already is not run again, so an interrupted run continues. Ends with 1 if a soak failed,
and prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from e2e.soak import Plan, opened
from mailgres import resources
from worker.restartable import RestartableHarness

KINDS = ("resend", "resend", "ses", "smtp")
"""Half of the soaks are for the provider with keys, where nothing may arrive twice."""
SECONDS = 300.0
REPOSITORY = Path(__file__).parents[2]


def short_plan(seed: int) -> Plan:
    """A soak of seconds."""
    chance = random.Random(seed)  # noqa: S311 - chaos, not secrets
    return Plan(
        kind=KINDS[seed % len(KINDS)],
        mails=chance.randint(15, 40),
        workers=chance.randint(1, 3),
        kills=chance.randint(0, 2),
        restarts=int(chance.random() < 0.2),
        crashes=int(chance.random() < 0.3),
        cuts=int(chance.random() < 0.3),
        bad=chance.randint(1, 2),
        lease=2.5,
        seed=seed,
        seconds=SECONDS,
    )


@contextmanager
def prepared_server() -> Iterator[Path]:
    """The directory of a server with a migrated database, which is off: each soak copies it."""
    with TemporaryDirectory(prefix="mailgres-soak-") as place, TemporaryDirectory() as logs:
        Path(place).chmod(0o711)
        RestartableHarness(Path(place), Path(logs), resources.migrations_directory()).switch_off()
        yield Path(place)


class Campaign:
    """Runs soaks, several at once, and stores what they report."""

    def __init__(self, results: Path, prepared: Path) -> None:
        self._results = results
        self._prepared = prepared
        self._commit = commit()
        self._writing = threading.Lock()
        self.failed: list[Plan] = []
        self.count = 0

    def left(self, seeds: range) -> list[int]:
        """The seeds that are not in the file yet."""
        lines = self._results.read_text().splitlines() if self._results.exists() else []
        done = {json.loads(line)["soak"]["seed"] for line in lines}
        return [seed for seed in seeds if seed not in done]

    def run(self, seed: int) -> None:
        plan = short_plan(seed)
        with opened(plan, resources.migrations_directory(), self._prepared) as soak:
            reported = {"commit": self._commit, **soak.run()}
        with self._writing:
            self.store(plan, reported)

    def store(self, plan: Plan, reported: dict[str, Any]) -> None:
        with self._results.open("a") as file:
            file.write(json.dumps(reported) + "\n")
        self.count += 1
        if not reported["good"]:
            self.failed.append(plan)
            print(f"seed {plan.seed} failed. To repeat it: {plan.command()}", flush=True)  # noqa: T201


def commit() -> str:
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    results = REPOSITORY / "benchmarks" / "results" / "soak_seeds.jsonl"
    parser.add_argument("--results", type=Path, default=results)
    given = parser.parse_args()
    with prepared_server() as prepared, ThreadPoolExecutor(given.at_once) as pool:
        campaign = Campaign(given.results, prepared)
        seeds = campaign.left(range(given.first, given.first + given.count))
        for _ in pool.map(campaign.run, seeds):
            pass
    print(f"{campaign.count} soaks, {len(campaign.failed)} failed")  # noqa: T201
    sys.exit(1 if campaign.failed else 0)


if __name__ == "__main__":
    main()
