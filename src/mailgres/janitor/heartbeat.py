"""Says that this worker lives.

Every 10 seconds, one row, each worker for itself and so without a lock.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

HEARTBEAT = Janitor(
    name="heartbeat",
    duty="says that this worker lives",
    every=timedelta(seconds=10),
    query=query("heartbeat"),
    locked=False,
)
