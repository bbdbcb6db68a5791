"""A provider that fails on purpose, by rule: for tests of everything around it."""

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

    `calls`: the numbers of the calls that fail, counting from 1; `rate`: or this share of them.
    `accepts`: the message goes out all the same, and only the answer is lost.
    `delay`: seconds the call takes, failing or not.
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
    """Wraps a provider; the first fault whose rule fits a call is what happens to it."""

    inner: Provider
    faults: Sequence[Fault]
    random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - faults, not secrets
    sleep: Callable[[float], None] = time.sleep
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The name of the provider it stands for."""
        return self.inner.name

    @property
    def kind(self) -> str:
        """The kind of the provider it stands for."""
        return self.inner.kind

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the provider it stands for."""
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
        """The limits of the provider it stands for."""
        return self.inner.limits()

    def check(self) -> Result:
        """Ask the provider it stands for."""
        return self.inner.check()

    def close(self) -> None:
        """Close the provider it stands for."""
        self.inner.close()

    def _next_fault(self) -> Fault | None:
        with self.lock:
            self.calls += 1
            return next((fault for fault in self.faults if self._fits(fault)), None)

    def _fits(self, fault: Fault) -> bool:
        return self.calls in fault.calls or (fault.rate > 0 and self.random.random() < fault.rate)
