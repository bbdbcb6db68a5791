"""Runs bulk actions in a thread of the page, so that they go on when the browser is closed.

Workers run them, too (the janitor `run_bulk_actions`). A chunk is one transaction that locks its
action, so any number of processes may run them, and a process that dies loses no chunk.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.page.store import PageStore

log = logging.getLogger(__name__)

CHUNK = 200
"""Emails in one transaction, as on the command line."""
IDLE_SECONDS = 5.0
"""Seconds after which it looks for actions that another process left."""
AGAIN_SECONDS = 1.0
"""Seconds until the next chunk if another process has the action or the database is away."""


class BulkRunner:
    """A thread that does chunks while an action is running; `is_off`: the page is read-only."""

    def __init__(self, store: PageStore, *, is_off: bool = False) -> None:
        self._store = store
        self._is_off = is_off
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._closed = threading.Event()

    def wake(self) -> None:
        """Look for actions now; the first call starts the thread."""
        with self._lock:
            if self._is_off or self._closed.is_set():
                return
            self._woken.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bulk", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread after its current chunk."""
        with self._lock:
            self._closed.set()
            self._woken.set()
            thread = self._thread
        if thread:
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._woken.clear()
            self._run_all()
            self._woken.wait(IDLE_SECONDS)

    def _run_all(self) -> None:
        """Do chunks until no action is running."""
        is_running = True
        while is_running and not self._closed.is_set():
            try:
                handled, is_running = self._store.run_bulk_actions(CHUNK)
            except MailgresError as error:
                handled = 0
                reported = {"action": "bulk", "sqlstate": error.sqlstate}
                log.warning("a chunk of a bulk action failed: %s", error.message, extra=reported)
            if is_running and not handled:
                self._closed.wait(AGAIN_SECONDS)
