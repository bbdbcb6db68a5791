"""A provider that fails on purpose, by rules: for tests and benchmarks."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailgres.model import Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mailgres.model import Limits, Message
    from mailgres.providers.base import Capabilities, Provider


@dataclass(frozen=True, slots=True)
class Fault:
    """When to fail, and how.

    `calls`: the numbers of the calls that fail, counting from 1. `rate`: the share of calls that
    fail. `accepts`: the message is sent and only the answer is lost. `delay`: seconds that the call
    takes, whether it fails or not.
    """

    verdict: Verdict = "transient"
    calls: frozenset[int] = frozenset()
    rate: float = 0.0
    accepts: bool = False
    delay: float = 0.0
    code: str = "simulated"
    message: str = "a simulated fault"


@dataclass
class FaultyProvider:
    """Wraps a provider; the first fault that matches a call happens."""

    inner: Provider
    faults: Sequence[Fault]
    random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - faults, not secrets
    sleep: Callable[[float], None] = time.sleep
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self.inner.name

    @property
    def kind(self) -> str:
        """The kind of the wrapped provider."""
        return self.inner.kind

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the wrapped provider."""
        return self.inner.capabilities

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send, or fail by the rules."""
        fault = self._next_fault()
        if fault is None:
            return self.inner.send(messages)
        if fault.delay:
            self.sleep(fault.delay)
        if fault.verdict == "sent" or fault.accepts:
            results = self.inner.send(messages)
            if fault.verdict == "sent":
                return results
        return [Result(fault.verdict, code=fault.code, message=fault.message) for _ in messages]

    def limits(self) -> Limits | None:
        """Return the limits of the wrapped provider."""
        return self.inner.limits()

    def check(self) -> Result:
        """Check the credentials of the wrapped provider."""
        return self.inner.check()

    def close(self) -> None:
        """Close the wrapped provider."""
        self.inner.close()

    def _next_fault(self) -> Fault | None:
        with self.lock:
            self.calls += 1
            return next((fault for fault in self.faults if self._fits(fault)), None)

    def _fits(self, fault: Fault) -> bool:
        return self.calls in fault.calls or (fault.rate > 0 and self.random.random() < fault.rate)
