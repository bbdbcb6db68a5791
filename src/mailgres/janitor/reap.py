"""Takes back the emails of workers that died.

Every 5 seconds, 500 emails at a time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

REAP = Janitor(
    name="reap",
    duty="takes back the emails of workers that died",
    every=timedelta(seconds=5),
    query=query("reap"),
    chunk=500,
)
