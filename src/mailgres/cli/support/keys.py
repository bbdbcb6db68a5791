"""Which emails a long job is about, in as little memory as it takes: 24 bytes each."""

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
    """Ids of emails in their order; of dead letters each with the time of its death."""

    def __init__(self, ids: Iterable[UUID] = ()) -> None:
        self._ids = bytearray()
        self._times = array("q")
        for one in ids:
            self.add(one)

    def add(self, key: UUID, dead_at: datetime | None = None) -> None:
        """Append one; either all have a time or none."""
        self._ids += key.bytes
        if dead_at is not None:
            self._times.append((dead_at - _EPOCH) // _TICK)

    def __len__(self) -> int:
        return len(self._ids) // _SIZE

    def ids(self, start: int = 0, end: int | None = None) -> Iterator[UUID]:
        """The ids from one place up to another."""
        for at in range(start * _SIZE, min(end or len(self), len(self)) * _SIZE, _SIZE):
            yield UUID(bytes=bytes(self._ids[at : at + _SIZE]))

    def chunk(self, start: int, size: int) -> dict[UUID, datetime | None]:
        """So many keys from a place on, but no id twice: the next chunk begins with that.

        One email may have died twice, and of each death has to be told what came of it.
        """
        found: dict[UUID, datetime | None] = {}
        for at, key in enumerate(self.ids(start, start + size), start):
            if key in found:
                break
            found[key] = _EPOCH + self._times[at] * _TICK if self._times else None
        return found
