"""Moves dead emails to the archive after their time in the queue, `dead_letter_ttl` (7 days).

Every minute, 200 emails at a time: each takes its whole log along.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

ARCHIVE = Janitor(
    name="archive",
    duty="moves emails to the archive that have been dead for long",
    every=timedelta(seconds=60),
    query=query("archive"),
    chunk=200,
)
