"""Live updates: an event for the browser when what it shows has changed.

The database is asked ten times a second while a browser shows the inbox, with a query
that reads the rows of the first page. There is no trigger and no NOTIFY, so sending is as fast as
without an inbox.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.web import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from mailgres.inbox.store import InboxStore

POLL_SECONDS = 0.1
"""Seconds between two looks at the database."""
AWAY_SECONDS = 0.5
"""The same, while it does not answer."""
BEAT_SECONDS = 10.0
"""Seconds between signs of life, so that a vanished browser is noticed."""
MOST_STREAMS = 20
"""Browsers that watch at the same time."""


class Streams:
    """The open streams of one inbox."""

    def __init__(self, store: InboxStore, version: Callable[[], str]) -> None:
        self._store = store
        self._version = version
        self._stopped = False
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there is room for another one."""
        return self._count >= MOST_STREAMS

    def stop(self) -> None:
        """End all streams soon."""
        self._stopped = True

    def state(self, queue_id: UUID | None) -> str:
        """Return what a browser's page is compared with."""
        return f"{self._store.state(queue_id)}{self._version()}"

    async def stream(self, known: str, queue_id: UUID | None) -> AsyncIterator[str]:
        """Yield `changed` whenever it has, and `away` while the database does not answer."""
        self._count += 1
        try:
            yield "retry: 500\n\n"
            beat, away = time.monotonic(), False
            while not self._stopped:
                try:
                    state = await in_thread(self.state, queue_id)
                except MailgresError:
                    if not away:
                        yield "event: away\ndata: 1\n\n"
                    away = True
                    await asyncio.sleep(AWAY_SECONDS)
                    continue
                if state != known or away:
                    yield "event: changed\ndata: 1\n\n"
                    known, away = state, False
                elif time.monotonic() - beat > BEAT_SECONDS:
                    yield ": still here\n\n"
                    beat = time.monotonic()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._count -= 1
