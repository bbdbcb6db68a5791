"""Makes waiting emails ready that are due, and ends those that expired meanwhile.

Every second, 1000 emails at a time. A claim promotes first, too; this one is for emails that
become due while all workers are busy or asleep.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

PROMOTE = Janitor(
    name="promote",
    duty="makes waiting emails ready that are due",
    every=timedelta(seconds=1),
    query=query("promote"),
    chunk=1000,
)
