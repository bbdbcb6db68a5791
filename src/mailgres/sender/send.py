"""Send a batch: each step takes values and returns values.

A fault of one email never affects the others of its batch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from mailgres import measurements
from mailgres.model import Message, Outcome, Result
from mailgres.providers import NotMade
from mailgres.safe_errors import where
from mailgres.sender.attempt_starter import AttemptStarter
from mailgres.sender.limits import LimitWatch
from mailgres.sender.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from mailgres.model import ClaimedEmail
    from mailgres.providers import Provider
    from mailgres.sender.render import Renderer
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)


class Sender:
    """Sends batches through the providers it has."""

    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        providers: dict[str, Provider],
        lease: timedelta | None = None,
    ) -> None:
        """Send with these providers; `lease` is how long an attempt may take once it started."""
        self.renderer = renderer
        self.providers = providers
        self._store = store
        self._lease = lease
        self._starter = AttemptStarter(store, lease)
        self._limits = LimitWatch(store)

    def render_ahead(self, emails: Sequence[ClaimedEmail]) -> Sequence[Message | Outcome] | None:
        """Render emails that wait for a free sender; None if this does not help.

        Without keys, calls start together and end together, and all senders would render at the
        same moment. Attachments are not read ahead: they may be large.
        """
        idempotent = self.providers[emails[0].provider].capabilities.idempotent
        if idempotent or any(email.has_attachments for email in emails):
            return None
        try:
            return self.renderer.render(emails)
        except Exception:  # noqa: BLE001 - the sender renders it and handles the fault
            return None

    def send(
        self,
        emails: Sequence[ClaimedEmail],
        rendered: Sequence[Message | Outcome] | None = None,
    ) -> list[Outcome]:
        """Send emails that were claimed for one provider, and return their outcomes.

        `rendered`: what `render_ahead` returned for them. Emails that `start_attempts` refused are
        already settled in the database: no outcome.
        """
        provider = self.providers[emails[0].provider]
        if rendered is None:
            rendered = self.renderer.render(emails)
        outcomes = [item for item in rendered if isinstance(item, Outcome)]
        messages = [item for item in rendered if isinstance(item, Message)]
        if messages and not provider.capabilities.idempotent:
            messages, not_tried = self._start(provider, messages)
            outcomes += not_tried
        if messages:
            outcomes += call(provider, messages)
        return outcomes

    def _start(
        self, provider: Provider, messages: Sequence[Message]
    ) -> tuple[list[Message], list[Outcome]]:
        """Return what may be sent; or, while the circuit is open, outcomes of calls not made.

        A probe without a key cannot be retried if its outcome is uncertain. So the provider is
        first checked in a way that costs no email.
        """
        emails = [message.email for message in messages]
        started = self._starter.start(emails)
        if started.check_first:
            if fault := failed_check(provider):
                return [], [Outcome(email, fault) for email in emails]
            started = self._store.start_attempts(emails, self._lease)
        return [message for message in messages if message.email.claim in started.allowed], []

    def learn(self, provider: str) -> None:
        """Store what a provider said about its limits; call this after handing over outcomes."""
        self._limits.update(self.providers[provider])


def failed_check(provider: Provider) -> Result | None:
    """Check a provider that failed; return the fault if it still fails. Nothing is sent."""
    try:
        found = provider.check()
    except Exception as error:  # noqa: BLE001 - a provider's code may raise anything: the call decides
        log.error("no check: %s", where(error), extra={"action": "send"})  # noqa: TRY400
        return None
    found = found.cut()
    if found.verdict == "config":
        return replace(found, account=True)
    if found.verdict in {"transient", "ambiguous"}:
        return replace(found, verdict="transient", account=True, pinned=False)
    return None


def call(provider: Provider, messages: Sequence[Message]) -> list[Outcome]:
    """Make the call. Any other exception means that its outcome is uncertain.

    That is so until its outcomes are returned: from here, only NotMade says it was not made.
    """
    start = time.monotonic()
    try:
        results = provider.send(messages)
        took = time.monotonic() - start
        return _outcomes(provider, messages, results, took)
    except NotMade:
        raise
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        log.error(  # noqa: TRY400 - not its text, which may quote an address
            "a provider's code failed: %s",
            where(error),
            extra={"action": "send", "provider": provider.name},
        )
        broken = _broken(type(error).__name__, where(error))
        return _outcomes(provider, messages, [broken] * len(messages), time.monotonic() - start)


def _outcomes(
    provider: Provider, messages: Sequence[Message], results: Sequence[Result], seconds: float
) -> list[Outcome]:
    """Return the outcome of each email of a call."""
    if len(results) != len(messages):
        log.error("results are missing", extra={"action": "send", "provider": provider.name})
        results = [_broken("results_missing")] * len(messages)
    measurements.SEND_SECONDS.observe(seconds, provider.name)
    took = round(seconds * 1000)
    together = sum(result.called for result in results)  # the others were not in the call
    return [
        Outcome(message.email, redact(result, message), took, together if result.called else None)
        for message, result in zip(messages, results, strict=True)
    ]


def _broken(code: str, place: str | None = None) -> Result:
    """Return the outcome of a failure in a provider's code; `place` is for its author."""
    message = "the provider's code failed during the call"
    return Result("ambiguous", code=code, message=message, detail=place)
