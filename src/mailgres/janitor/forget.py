"""Forgets workers that were not seen for a day, and sleepers that never woke.

Every 10 minutes, 1000 rows at a time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

FORGET = Janitor(
    name="forget",
    duty="forgets workers not seen for a day",
    every=timedelta(seconds=600),
    query=query("forget"),
    chunk=1000,
)
