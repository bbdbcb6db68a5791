"""Sends a batch: each step takes values and gives values.

A fault of one email never touches the others of its batch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres.model import Message, Outcome, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Email
    from mailgres.providers import Provider
    from mailgres.sender.render import Renderer
    from mailgres.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends batches through the providers it has."""

    store: Store
    renderer: Renderer
    providers: dict[str, Provider]

    def send(self, emails: Sequence[Email]) -> list[Outcome]:
        """Send emails that were claimed for one provider, and return what came of them.

        Those that `begin` refused are settled in the database already and have no outcome.
        """
        provider = self.providers[emails[0].provider]
        rendered = self.renderer.render(emails)
        outcomes = [item for item in rendered if isinstance(item, Outcome)]
        messages = [item for item in rendered if isinstance(item, Message)]
        if messages and not provider.capabilities.idempotent:
            allowed = self.store.begin(message.email for message in messages)
            messages = [message for message in messages if message.email.id in allowed]
        if messages:
            outcomes += call(provider, messages)
        return outcomes


def call(provider: Provider, messages: Sequence[Message]) -> list[Outcome]:
    """Make the call. Whatever it raises means that nobody knows whether it arrived."""
    start = time.monotonic()
    try:
        results = provider.send(messages)
    except Exception as error:
        log.exception(
            "a provider's code failed", extra={"action": "send", "provider": provider.name}
        )
        results = [_broken(type(error).__name__)] * len(messages)
    if len(results) != len(messages):
        log.error("results are missing", extra={"action": "send", "provider": provider.name})
        results = [_broken("results_missing")] * len(messages)
    took = round((time.monotonic() - start) * 1000)
    return [
        Outcome(message.email, result, took)
        for message, result in zip(messages, results, strict=True)
    ]


def _broken(code: str) -> Result:
    return Result("ambiguous", code=code, message="the provider's code failed during the call")
