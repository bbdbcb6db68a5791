"""The protocol that every peer of the scorecard speaks, for peers in Python.

A peer is a process. It reads one command per line and answers each with one line of JSON:

    setup                         make the schema of the queue in DATABASE_URL
    fill FIRST COUNT TENANTS      enqueue the emails FIRST, FIRST + 1, … in bulk, a thousand at a
                                  time; tenants take turns, 0 means that there is one
    enqueue FIRST COUNT           enqueue one by one, each with its own commit
    grow SENT FUTURE              add rows: sent ones where the queue keeps them, and future ones
    work RECORD DELAY_MS TENANTS  start a worker; each call takes DELAY_MS
    stop                          let the worker write what it did, then stop it
    left                          count the emails that are not settled

An answer is `{"answer": …}` or `{"error": "…"}`. A working peer also writes `{"done": …,
"last_ns": …}`: how many calls it made, and when it made the last one. If RECORD is not `-`,
every call appends a line with the number of the email and the time to that file, so that nothing
is lost when the peer is killed. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of
a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

REPORT_SECONDS = 0.02
BULK = 1000
STOP_SECONDS = 30


def clock() -> int:
    """Return the time that all processes of the machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def chunks(first: int, count: int) -> Iterator[range]:
    """Return the numbers of a bulk enqueue, a thousand at a time."""
    end = first + count
    for start in range(first, end, BULK):
        yield range(start, min(start + BULK, end))


def payload(number: int) -> dict[str, Any]:
    """Return the data of one email."""
    return {"number": number, "name": "Ana", "product": "Acme", "url": "https://app.example.com"}


class Peer:
    """A queue. Subclasses implement the commands."""

    delay = 0.0
    """Seconds that each call takes."""
    tenants = 0
    """How many tenants the emails have; 0 means that they have none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.done = 0
        self.last_ns = 0
        self._record: int | None = None

    def setup(self) -> None:
        """Make the schema."""
        raise NotImplementedError

    def fill(self, first: int, count: int, tenants: int) -> None:
        """Enqueue in bulk."""
        raise NotImplementedError

    def enqueue(self, first: int, count: int) -> None:
        """Enqueue one by one."""
        for number in range(first, first + count):
            self.enqueue_one(number)

    def enqueue_one(self, number: int) -> Any:  # noqa: ANN401
        """Enqueue one email and commit; a coroutine if the client is asynchronous."""
        raise NotImplementedError

    def grow(self, sent: int, future: int) -> None:
        """Add sent and future rows."""
        raise NotImplementedError

    def work(self) -> None:
        """Start the worker."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the worker."""
        raise NotImplementedError

    def left(self) -> int:
        """Return how many emails are not settled."""
        raise NotImplementedError

    def called(self, number: int, key: str = "-") -> None:
        """Note a call; the worker's handler says so for each email.

        `key`: the idempotency key that the call carries, if the queue makes one.
        """
        self.last_ns = clock()
        if self._record is not None:
            os.write(self._record, f"{number} {self.last_ns} {key}\n".encode())
        self.done += 1

    def record_to(self, path: str) -> None:
        """Append the calls to a file from now on; `-` records nothing."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._record = None if path == "-" else os.open(path, flags, 0o600)


class AsyncPeer(Peer):
    """A queue whose client is asynchronous: its event loop runs in a thread."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        """Run a coroutine in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def enqueue(self, first: int, count: int) -> None:
        """Enqueue one by one, in the loop."""

        async def enqueue() -> None:
            for number in range(first, first + count):
                await self.enqueue_one(number)

        self.wait(enqueue())

    async def handle(self, number: int) -> None:
        """Take the time of a call, and note it."""
        if self.delay:
            await asyncio.sleep(self.delay)
        self.called(number)


class Commands:
    """Reads commands and answers them."""

    NUMBERS: ClassVar = {"fill": 3, "enqueue": 2, "grow": 2, "setup": 0, "stop": 0, "left": 0}

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._writing = threading.Lock()

    def write(self, **line: Any) -> None:  # noqa: ANN401
        """Write one line of JSON."""
        with self._writing:
            print(json.dumps(line), flush=True)

    def report(self) -> None:
        """Write how many calls were made, whenever that changed."""
        reported = 0
        while True:
            time.sleep(REPORT_SECONDS)
            if self.peer.done != reported:
                reported = self.peer.done
                self.write(done=reported, last_ns=self.peer.last_ns)

    def answer(self, command: str, words: list[str]) -> Any:  # noqa: ANN401
        """Do what a command says."""
        if command == "work":
            record, delay_ms, tenants = words
            self.peer.record_to(record)
            self.peer.delay = float(delay_ms) / 1000
            self.peer.tenants = int(tenants)
            return self.peer.work()
        numbers = [int(word) for word in words]
        if len(numbers) != self.NUMBERS[command]:
            raise ValueError(f"{command} takes {self.NUMBERS[command]} numbers")
        start = clock()
        result = getattr(self.peer, command)(*numbers)
        end = clock()
        timed = {"seconds": (end - start) / 1e9, "committed_ns": end}
        return timed if command in ("fill", "enqueue") else result

    def serve(self) -> None:
        """Answer commands until the input ends."""
        threading.Thread(target=self.report, daemon=True).start()
        for line in sys.stdin:
            command, *words = line.split()
            try:
                result = self.answer(command, words)
            except Exception as error:  # noqa: BLE001 - the runner reports it
                self.write(error=f"{command}: {type(error).__name__}: {error}"[:500])
            else:
                self.write(answer=result)


def main(kind: type[Peer]) -> None:
    """Be this peer until the input ends."""
    peer = kind(os.environ["DATABASE_URL"])
    commands = Commands(peer)
    commands.write(answer="ready")
    commands.serve()
    os._exit(0)  # a client's threads may wait for a server that is gone
