"""What all doubles of providers share: faults on order, and a record of what they accepted.

A double of an HTTP API serves in threads of the test's own process, `with serve(double)`, or in a
process of its own, `with in_a_process("doubles.resend")`, for workers that are processes, too.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from doubles.http_server import Reply, serving
from doubles.remote import RemoteDouble


class AnyFault(Protocol):
    """`times`: how many calls it meets (-1: all of them); `share`: the part of them it meets."""

    times: int
    share: float


FaultT = TypeVar("FaultT", bound=AnyFault)
AcceptedT = TypeVar("AcceptedT")


class Double(ABC, Generic[FaultT, AcceptedT]):
    """A provider. Threads use it at the same time."""

    def __init__(self) -> None:
        self.connections = 0
        self.faults_met = 0
        self._faults: deque[FaultT] = deque()
        self._accepted: list[AcceptedT] = []
        self._random = random.Random(0)  # noqa: S311 - faults, not secrets
        self._lock = threading.Lock()

    def add_faults(self, *faults: FaultT) -> None:
        """Let calls fail, in this order."""
        with self._lock:
            self._faults.extend(faults)

    def clear_faults(self) -> None:
        """Let everything work again."""
        with self._lock:
            self._faults.clear()

    def accepted(self) -> list[AcceptedT]:
        """Return what was really sent."""
        with self._lock:
            return list(self._accepted)

    def summary(self) -> dict[str, Any]:
        """Return how many emails were sent, how many more than once, and what was called."""
        with self._lock:
            by_id = Counter(map(self._email_of, self._accepted))
            return {
                "accepted": len(self._accepted),
                "different": len(by_id),
                "doubles": {key: n for key, n in by_id.items() if n > 1 and key is not None},
                **self._counts(),
                "faults_met": self.faults_met,
                "faults_left": len(self._faults),
            }

    @staticmethod
    @abstractmethod
    def _email_of(accepted: AcceptedT) -> str | None:
        """Return mailgres's id of an accepted email."""

    @abstractmethod
    def _counts(self) -> dict[str, Any]:
        """Return the counts of this kind of provider."""

    def _take_fault(self, meets: Callable[[FaultT], bool]) -> FaultT | None:
        """Return the first fault that meets a call, and count it."""
        with self._lock:
            for fault in self._faults:
                if not meets(fault):
                    continue
                if fault.share < 1.0 and self._random.random() >= fault.share:
                    continue
                self.faults_met += 1
                if fault.times > 0:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
                return fault
        return None


class HttpDouble(Double[FaultT, dict[str, Any]]):
    """A provider with an HTTP API. `/_double/` is for `RemoteDouble`."""

    fault: ClassVar[Callable[..., Any]]
    """The class of its faults."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.calls: Counter[str] = Counter()

    @abstractmethod
    def set(self, **settings: Any) -> None:
        """Change the account."""

    @abstractmethod
    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Handle a request of a client."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Handle any request."""
        if path.startswith("/_double/"):
            return self._control(method, path.removeprefix("/_double/"), body)
        return self.handle(method, path, headers, body)

    @staticmethod
    def _email_of(accepted: dict[str, Any]) -> str | None:
        found: str | None = accepted["mailgres_id"]
        return found

    def _counts(self) -> dict[str, Any]:
        return {"calls": dict(self.calls)}

    def _control(self, method: str, what: str, body: bytes) -> Reply:
        order: Any = json.loads(body or b"null")
        if (method, what) == ("POST", "faults"):
            self.add_faults(*(type(self).fault(**each) for each in order))
        elif (method, what) == ("DELETE", "faults"):
            self.clear_faults()
        elif (method, what) == ("POST", "settings"):
            self.set(**order)
        elif (method, what) == ("GET", "accepted"):
            return as_json(self.accepted())
        elif (method, what) != ("GET", "summary"):
            return Reply(404, b"{}")
        return as_json(self.summary())


def as_json(value: Any) -> Reply:
    return Reply(200, json.dumps(value).encode())


HttpDoubleT = TypeVar("HttpDoubleT", bound=HttpDouble[Any])


@contextmanager
def serve(double: HttpDoubleT) -> Iterator[HttpDoubleT]:
    """Let a double answer in threads of this process."""

    def count() -> None:
        double.connections += 1

    with serving(double.answer, count) as double.url:
        yield double


def run(double: HttpDouble[Any]) -> None:
    """Print where the double listens, and serve until the starting process ends."""
    with serve(double):
        print(double.url, flush=True)  # noqa: T201
        sys.stdin.read()


@contextmanager
def in_a_process(module: str, **settings: Any) -> Iterator[RemoteDouble]:
    """Run the double of a module in a process of its own; it has the same methods."""
    with subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        try:
            assert process.stdout is not None
            double = RemoteDouble(process.stdout.readline().strip())
            if settings:
                double.set(**settings)
            yield double
        finally:
            process.kill()
