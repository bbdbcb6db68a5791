"""Ends waiting emails whose time is over.

Every 15 seconds, 1000 emails at a time. None is sent late in between: a claim looks for itself.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

EXPIRE = Janitor(
    name="expire",
    duty="ends waiting emails whose time is over",
    every=timedelta(seconds=15),
    query=query("expire"),
    chunk=1000,
)
