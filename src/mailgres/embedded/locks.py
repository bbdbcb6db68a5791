"""File locks that the kernel releases, however their holder dies.

A lock belongs to the open file, not to the process: a child that inherits the descriptor holds the
lock too, until the last of them ends. The embedded server relies on that.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

from .errors import EmbeddedError
from .waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class FileLock:
    """One open lock file. Every instance competes with every other, even in one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def fileno(self) -> int:
        """Return the descriptor, for a child that is to hold this lock too."""
        return self._fd

    def try_shared(self) -> bool:
        """Take the lock together with other sharers, if no process has it exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock exclusively, if no other process has it."""
        return self._try(fcntl.LOCK_EX)

    def shared(self, seconds: float) -> None:
        """Take the lock together with other sharers, or raise after the given time."""
        if not wait_for(self.try_shared, seconds):
            raise self._busy(seconds)

    def exclusive(self, seconds: float) -> None:
        """Take the lock exclusively, or raise after the given time."""
        if not wait_for(self.try_exclusive, seconds):
            raise self._busy(seconds)

    def close(self) -> None:
        """Release it. Children that inherited the descriptor keep the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self._fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _busy(self, seconds: float) -> EmbeddedError:
        return EmbeddedError(
            f"The embedded PostgreSQL is busy: {self.path} was locked for {seconds:.0f} s",
            "Another process is starting or stopping the same server; try again.",
        )
