"""Request bodies, read within limits of size, time and memory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from mailgres.http.answers import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

LARGEST_BODY = 16 * 1024
"""Largest request body in bytes."""
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of all bodies that are being received."""
BODY_SECONDS = 10.0
"""Seconds that a body may take to arrive."""


@dataclass(eq=False, slots=True)
class _Reading:
    """A body that is being received, and its time limit."""

    limit: asyncio.Timeout
    body: bytearray = field(default_factory=bytearray)


class Bodies:
    """Reads bodies. Anyone may send one: a signature is checked only when all of it arrived.

    A normal caller sends its body immediately. So if the bodies are too large together, the oldest
    ones are refused as too slow: slow callers block no others.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._under_way: dict[_Reading, None] = {}

    async def read(self, request: Request, largest: int = LARGEST_BODY) -> bytes:
        """Return the body; refuse it if it is too large, as soon as that is known, or too slow."""
        too_large = Refused(413, "the body is too large", f"Send at most {largest} bytes.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > largest:
            raise too_large
        reading = _Reading(asyncio.timeout(BODY_SECONDS))
        self._under_way[reading] = None
        try:
            async with reading.limit:
                async for chunk in request.stream():
                    reading.body += chunk
                    if len(reading.body) > largest:
                        raise too_large
                    self._make_room()
        except TimeoutError:
            hint = f"Send it within {BODY_SECONDS:g} seconds."
            raise Refused(408, "the body did not arrive in time", hint) from None
        except ClientDisconnect:
            raise Refused(400, "the body is not complete", "Send all of it.") from None
        finally:
            self._under_way.pop(reading, None)
        return bytes(reading.body)

    def _make_room(self) -> None:
        """End the reading of the oldest bodies until the others are small enough together."""
        now = asyncio.get_running_loop().time()
        while sum(len(reading.body) for reading in self._under_way) > self._most_bytes:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.limit.reschedule(now)


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; no body is an empty object."""
    body = await Bodies().read(request)
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON", EXAMPLE) from None
    if not isinstance(found, dict):
        raise Refused(400, "the body is not a JSON object", EXAMPLE)
    return found


EXAMPLE = 'Send nothing, or an object such as {"batchSize": 100}.'
