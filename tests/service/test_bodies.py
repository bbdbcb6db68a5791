"""Bodies that arrive slowly use a bounded amount of memory together."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from mailgres.http.answers import Refused
from mailgres.http.bodies import Bodies

KIB = 1024
LARGEST = 10 * KIB


class Caller:
    """Sends a body in parts, when the test says so."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def read_by(self, bodies: Bodies) -> asyncio.Task[bytes]:
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        return asyncio.create_task(bodies.read(Request(scope, self._parts.get), LARGEST))

    async def send(self, body: bytes, *, more: bool = True) -> None:
        self._parts.put_nowait({"type": "http.request", "body": body, "more_body": more})
        for _ in range(10):  # it is read, and a reading that has to end ends
            await asyncio.sleep(0)


async def is_refused(reading: asyncio.Task[bytes]) -> int:
    try:
        await reading
    except Refused as refused:
        return refused.status
    return 0


def test_the_oldest_bodies_make_room_for_new_ones() -> None:
    async def story() -> None:
        bodies = Bodies(most_bytes=30 * KIB)
        slow = [Caller() for _ in range(4)]
        readings = [caller.read_by(bodies) for caller in slow]
        for caller in slow[:3]:
            await caller.send(b"x" * LARGEST)
        assert not any(reading.done() for reading in readings)
        await slow[3].send(b"x")
        assert [reading.done() for reading in readings] == [True, False, False, False]
        assert await is_refused(readings[0]) == 408

        # A caller that sends its body at once is served, and those that remain can go on.
        quick = Caller()
        reading = quick.read_by(bodies)
        await quick.send(b"y" * LARGEST, more=False)
        assert await reading == b"y" * LARGEST
        assert await is_refused(readings[1]) == 408
        await slow[3].send(b"x", more=False)
        assert await readings[3] == b"xx"
        await slow[2].send(b"", more=False)
        assert await readings[2] == b"x" * LARGEST

    asyncio.run(story())


def test_bodies_that_ended_leave_their_room_to_others() -> None:
    """Whether they were read, too large, or cut off."""

    async def story() -> None:
        bodies = Bodies(most_bytes=LARGEST)
        for _ in range(3):
            large, whole, cut = Caller(), Caller(), Caller()
            reading = large.read_by(bodies)
            await large.send(b"x" * (LARGEST + 1))
            assert await is_refused(reading) == 413
            reading = whole.read_by(bodies)
            await whole.send(b"x" * LARGEST, more=False)
            assert len(await reading) == LARGEST
            reading = cut.read_by(bodies)
            await cut.send(b"x" * LARGEST)
            cut._parts.put_nowait({"type": "http.disconnect"})
            assert await is_refused(reading) == 400

    asyncio.run(story())
