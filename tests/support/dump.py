"""A dump of a database, to compare it with itself later."""

from __future__ import annotations

import os
import subprocess

from mailgres.embedded import binaries

OF_A_LIVE_WORKER = (
    "workers",
    "sleepers",
    "depth*",
    "rollup_deltas",
    "claim_slots",
    "open_by_*",
    "notification_state",
)
"""Tables of the schema mailgres that a worker writes while it has nothing to do."""


def dump(url: str, *, without: tuple[str, ...] = ()) -> str:
    """The database as SQL, without what differs from dump to dump, nor the rows of some tables."""
    left_out = [f"--exclude-table-data=mailgres.{name}" for name in without]
    found = subprocess.run(
        [binaries.find(os.environ).program("pg_dump"), "--inserts", *left_out, url],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return "\n".join(line for line in found.splitlines() if not line.startswith(("--", "\\")))
