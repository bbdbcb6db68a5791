"""Sends nothing and says it did: for benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.model import Result
from mailgres.providers.base import Capabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Message


class NullProvider:
    """Accepts everything at once."""

    kind = "null"

    def __init__(self, name: str = "null", *, batch_size: int = 100) -> None:
        self.name = name
        self.capabilities = Capabilities(batch_size=batch_size, idempotent=True)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Accept all of them."""
        return [Result("sent", message.email.key) for message in messages]

    def limits(self) -> None:
        """It has none."""

    def check(self) -> Result:
        """There is nothing that could be wrong."""
        return Result("sent", untried="it needs none")

    def close(self) -> None:
        """Nothing to let go of."""
