"""Removes old counts: after `counts_ttl` (100 days), those of minutes after 8 days.

Every 10 minutes, 10,000 at a time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

TRIM = Janitor(
    name="trim",
    duty="removes counts that are too old to be asked for",
    every=timedelta(seconds=600),
    query=query("trim"),
    chunk=10_000,
)
