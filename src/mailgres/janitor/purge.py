"""Deletes archived emails after their time in the archive, `archive_ttl` (90 days).

Every minute, 500 emails at a time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

PURGE = Janitor(
    name="purge",
    duty="deletes archived emails whose time in the archive is over",
    every=timedelta(seconds=60),
    query=query("purge"),
    chunk=500,
)
