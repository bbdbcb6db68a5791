"""The benchmarks run: a trial with small numbers, so that they do not rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


MORE = (
    "claim",
    "drain",
    "worker",
    "providers",
    "webhooks",
    "events",
    "storage",
    "operator",
    "monitoring",
    "inbox",
    "page",
)


@pytest.mark.parametrize(
    "name", ["enqueue", *(pytest.param(name, marks=pytest.mark.long) for name in MORE)]
)
def test_every_benchmark_runs_as_a_trial(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--trial"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    if "needs pgbench" in result.stderr:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["trial"] is True
