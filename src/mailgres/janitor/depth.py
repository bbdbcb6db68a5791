"""Counts what is open, for the views that show how much waits.

Every 10 seconds, so that nobody sees figures that are older than 15. However many workers there
are, it is counted once; and where there is so much that counting takes long, less often: it never
takes more than a tenth of the time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

DEPTH = Janitor(
    name="depth",
    duty="counts what is open",
    every=timedelta(seconds=10),
    query=query("depth"),
)
