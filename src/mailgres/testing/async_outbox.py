"""The outbox for asynchronous tests: the same methods, each run in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from mailgres.testing.outbox import CapturedEmail, Fault, Outbox
    from mailgres.worker import Summary


class AsyncOutbox:
    """An outbox whose methods are awaited."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def emails(
        self, *, to: str | None = None, template: str | None = None, status: str | None = None
    ) -> list[CapturedEmail]:
        """Return the emails that were enqueued and committed, oldest first."""
        return await asyncio.to_thread(self._outbox.emails, to=to, template=template, status=status)

    async def only(self, *, to: str | None = None, template: str | None = None) -> CapturedEmail:
        """Return the one email to an address, or of a template; fail if there are none or more."""
        return await asyncio.to_thread(self._outbox.only, to=to, template=template)

    async def wait_for(
        self,
        *,
        to: str | None = None,
        template: str | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109 - a thread waits
    ) -> CapturedEmail:
        """Send what is due until such an email is sent, and return the newest one."""
        return await asyncio.to_thread(
            self._outbox.wait_for, to=to, template=template, timeout=timeout
        )

    async def drain(self) -> Summary:
        """Send everything that is due now."""
        return await asyncio.to_thread(self._outbox.drain)

    async def fail_next(
        self, fault: Fault, *, to: str | None = None, template: str | None = None
    ) -> None:
        """Let the next email to an address, of a template, or at all fail once."""
        await asyncio.to_thread(self._outbox.fail_next, fault, to=to, template=template)

    async def travel(self, by: timedelta) -> None:
        """Move the clock of mailgres."""
        await asyncio.to_thread(self._outbox.travel, by)

    async def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock of mailgres, by default now."""
        await asyncio.to_thread(self._outbox.freeze, at)

    async def clear(self) -> None:
        """Delete all emails, faults and suppressions, and restore the real time."""
        await asyncio.to_thread(self._outbox.clear)
