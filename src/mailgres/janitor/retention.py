"""Removes sent and cancelled emails after `sent_ttl` (90 days), with logs and attachments.

Also what is left of emails that somebody deleted by hand. Every minute, 1000 emails at a time. A
chunk looks at no more than 20,000 emails: where older ones have to stay, it goes on behind them
the next time.
"""

from __future__ import annotations

from datetime import timedelta

from mailgres.janitor.duty import Janitor, query

RETENTION = Janitor(
    name="retention",
    duty="removes emails that were sent or cancelled long ago",
    every=timedelta(seconds=60),
    query=query("retention"),
    chunk=1000,
)
