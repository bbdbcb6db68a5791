"""Commands of a person on call at a queue with ten million emails of 30 days.

    python -m benchmarks.operator [--trial]

Every filter of `mailgres list` over its default window, a day, also where nothing matches and
all of it is read; and the memory of `mailgres dlq export` for a million dead letters.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness, history
from mailgres.cli.support.operator import QUERIES

if TYPE_CHECKING:
    import psycopg

EMAILS = 10_000_000
PROGRAM = Path(sys.executable).with_name("mailgres")
GOAL_MS = 200
ROUNDS = 7
FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "status sent": {"status": ["sent"]},
    "status failed": {"status": ["failed"]},
    "status pending": {"status": ["pending"]},
    "status sending": {"status": ["sending"]},
    "status cancelled": {"status": ["cancelled"]},
    "template": {"template": ["template_7"]},
    "tenant": {"tenant": ["tenant-7"]},
    "recipient": {"recipient": ["user5@example.com"]},
    "domain": {"recipient": ["@example.com"]},
    "error code": {"error_code": ["code_7"]},
    "provider": {"provider": ["resend"]},
    "reason": {"dead_reason": ["exhausted"]},
    "template, none found": {"template": ["nothing"]},
    "tenant, none found": {"tenant": ["nothing"]},
    "recipient, none found": {"recipient": ["nobody@example.org"]},
    "domain, none found": {"recipient": ["@example.org"]},
    "error code, none found": {"error_code": ["nothing"]},
    "provider, none found": {"provider": ["nothing"]},
    "reason, none found": {"dead_reason": ["crashed"]},
    "failed and error code, none found": {"status": ["failed"], "error_code": ["nothing"]},
}


def listing(conn: psycopg.Connection, rounds: int) -> dict[str, Any]:
    """Return median times of the query of `mailgres list`, filter by filter."""
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    found: dict[str, Any] = {}
    for name, given in FILTERS.items():
        asked = {
            "filter": json.dumps({**given, "since": since}),
            "sort": "newest",
            "limit": 50,
        }

        def ask(asked: dict[str, Any] = asked) -> None:
            conn.execute(QUERIES["list"], asked).fetchall()

        ask()  # the first run reads from the disk
        before = cpu_ms(conn)
        found[name] = harness.milliseconds([harness.timed(ask) for _ in range(rounds)])
        if before is not None:
            found[name]["cpu_ms"] = round(((cpu_ms(conn) or 0) - before) / rounds)
    return found


def cpu_ms(conn: psycopg.Connection) -> float | None:
    """Return the CPU time of a connection's backend, which a busy machine does not change."""
    try:
        stat = Path(f"/proc/{conn.info.backend_pid}/stat").read_text()
    except OSError:
        return None  # the server is on another machine
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


def whole_command(url: str, rounds: int) -> dict[str, float]:
    """Measure `mailgres list` as a command, including the start of Python."""
    command = [str(PROGRAM), "list", "--recipient", "nobody@example.org"]
    env = {**os.environ, "DATABASE_URL": url}

    def run() -> None:
        subprocess.run(command, env=env, check=True, capture_output=True)

    return harness.milliseconds([harness.timed(run) for _ in range(rounds)])


def export(url: str) -> dict[str, Any]:
    """Measure memory and time of an export of all dead letters."""
    with tempfile.TemporaryDirectory(prefix="mailgres-bench-") as place:
        target = Path(place) / "dead.jsonl"
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        start = time.perf_counter()
        subprocess.run(
            [PROGRAM, "dlq", "export", str(target)],
            env={**os.environ, "DATABASE_URL": url},
            check=True,
            capture_output=True,
        )
        seconds = time.perf_counter() - start
        with target.open("rb") as lines:
            count = sum(1 for _ in lines)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "emails": count,
        "seconds": round(seconds, 1),
        "peak_mb": round(peak / 1024),
        "is_upper_bound": peak <= before,
    }


def main(*, trial: bool) -> None:
    """Fill a queue and measure everything."""
    emails, rounds = (20_000, 1) if trial else (EMAILS, ROUNDS)
    with harness.server() as server:
        url = harness.migrated(server, "operator")
        with harness.connect(url) as conn:
            history.fill(conn, emails)
            small = harness.migrated(server, "small")
            with harness.connect(small) as other:
                history.fill(other, min(emails, 10_000))
            found = listing(conn, rounds)
            worst = max(one["median_ms"] for one in found.values())
            result = {
                "trial": trial,
                "emails": emails,
                "days": history.DAYS,
                "list": found,
                "list_worst_median_ms": worst,
                "list_goal_ms": GOAL_MS,
                "list_whole_command": whole_command(url, rounds),
                "export_of_a_thousand": export(small),
                "export_of_all": export(url),
            }
            harness.report("operator", conn, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
