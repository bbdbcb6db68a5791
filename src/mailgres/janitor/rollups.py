"""Adds new counts to the rollups that the views for analysts read.

Every 5 seconds, 10,000 deltas at a time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

ROLLUPS = Janitor(
    name="rollups",
    duty="adds new counts to the rollups",
    every=timedelta(seconds=5),
    query=query("rollups"),
    chunk=10_000,
)
