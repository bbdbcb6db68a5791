"""What the worker knows of a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Limits, Message, Result


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do.

    `idempotent`: it takes keys, so that a call whose outcome is unknown may be repeated.
    `fixed_batches`: a call with several emails has one key, so it is repeated with the same emails
    in the same order, or not at all.
    """

    batch_size: int = 1
    idempotent: bool = False
    fixed_batches: bool = False
    attachments: bool = True


class NotMade(Exception):
    """Raised by `send`: the call may be made again as if it never had been.

    The emails go back into the queue and no retry is spent: for a provider that needs what the
    queue itself needs, which is away.
    """


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
