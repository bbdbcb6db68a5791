"""What the worker knows of a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Message, Result


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do.

    `idempotent`: it takes keys, so that a call whose outcome is unknown may be repeated.
    """

    batch_size: int = 1
    idempotent: bool = False
    attachments: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider said of its own limits; None where it said nothing.

    `calls_per_second`: how many calls it takes. `daily`, `monthly`: how many emails.
    `sent_today`: how many emails of the daily limit it counts as used.
    """

    calls_per_second: float | None = None
    daily: int | None = None
    monthly: int | None = None
    sent_today: int | None = None


class Provider(Protocol):
    """Sends messages. Threads call it at the same time."""

    @property
    def name(self) -> str:
        """Its name in the database, and in routes."""
        ...

    @property
    def kind(self) -> str:
        """Which service it is."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send up to `batch_size` messages in one call, and return a result for each, in order.

        A fault of the call is a result, not an exception. An exception is a bug; the worker then
        takes the outcome for unknown.
        """
        ...

    def limits(self) -> Limits | None:
        """What it has said of its limits by now: read after calls, kept for all workers."""
        ...

    def check(self) -> Result:
        """Try the credentials without sending anything: `sent` if they are good."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
