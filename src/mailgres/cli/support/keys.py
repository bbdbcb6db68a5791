"""The emails of a long job, in 24 bytes of memory each."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SIZE = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class Keys:
    """Ids of emails in order; for dead letters, each with its `dead_at`."""

    def __init__(self, ids: Iterable[UUID] = ()) -> None:
        self._ids = bytearray()
        self._times = array("q")
        for one in ids:
            self.add(one)

    def add(self, key: UUID, dead_at: datetime | None = None) -> None:
        """Append an id; either all have a time or none has."""
        self._ids += key.bytes
        if dead_at is not None:
            self._times.append((dead_at - _EPOCH) // _TICK)

    def __len__(self) -> int:
        return len(self._ids) // _SIZE

    def ids(self, start: int = 0, end: int | None = None) -> Iterator[UUID]:
        """Yield the ids between two positions."""
        for at in range(start * _SIZE, min(end or len(self), len(self)) * _SIZE, _SIZE):
            yield UUID(bytes=bytes(self._ids[at : at + _SIZE]))

    def chunk(self, start: int, size: int) -> dict[UUID, datetime | None]:
        """Return at most `size` keys from a position on, no id twice.

        An email may be two dead letters, each with its own report: a repeated id starts the next
        chunk.
        """
        found: dict[UUID, datetime | None] = {}
        for at, key in enumerate(self.ids(start, start + size), start):
            if key in found:
                break
            found[key] = _EPOCH + self._times[at] * _TICK if self._times else None
        return found
