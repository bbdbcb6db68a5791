"""Emails that wait for a free sender are rendered meanwhile, if their provider has no keys."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from mailgres.model import ClaimedEmail, Message, Outcome
from mailgres.sender import Renderer
from support.queue import RESEND
from worker.harness import WorkerHarness, until
from worker.test_lease import Gate

EMAILS = 4
FILE = Jsonb([{"filename": "a.txt", "content": "QQ=="}])


class NotingRenderer(Renderer):
    """Records which thread rendered an email."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.threads: list[str] = []

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        rendered = super().render(emails)
        self.threads += [threading.current_thread().name] * len(emails)
        return rendered

    def ahead(self) -> int:
        """Return how many emails no sender rendered."""
        return sum(not name.startswith("mailgres-sender") for name in self.threads)


class FailingAhead(NotingRenderer):
    """Fails unless a sender calls it."""

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        rendered = super().render(emails)
        if not self.threads[-1].startswith("mailgres-sender"):
            raise RuntimeError
        return rendered


def send_one_by_one(harness: WorkerHarness, renderer: type[NotingRenderer], **of: Any) -> int:
    """Send emails through one sender that is busy; return how many were rendered ahead."""
    idempotent = of.pop("idempotent", False)
    harness.use_double(idempotent=idempotent)
    with harness.conn.transaction():
        emails = {str(harness.enqueue(RESEND, f"user{n}@example.com", **of)) for n in range(EMAILS)}
    gate = Gate(harness.ledger, idempotent=idempotent)
    with harness.running(gate, concurrency=1, batch_size=EMAILS, renderer=renderer) as worker:
        until(lambda: harness.ledger.entries("waiting"), "the sender is busy")
        until(lambda: worker._jobs.qsize() == EMAILS - 1, "the others wait for it")
        found = worker.sender.renderer
        assert isinstance(found, NotingRenderer)
        ahead = found.ahead()
        assert len(found.threads) == ahead + 1, "the sender has rendered one email"
        gate.opened.set()
        until(lambda: worker.finisher.counts["sent"] == EMAILS, "all are sent")
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)
    return ahead


def test_emails_that_wait_for_a_sender_are_rendered(harness: WorkerHarness) -> None:
    """All but the one that is being sent and the next one."""
    assert send_one_by_one(harness, NotingRenderer) >= EMAILS - 2


def test_a_provider_with_keys_is_not_rendered_for_ahead(harness: WorkerHarness) -> None:
    """Its calls do not start together; the claim goes on instead."""
    assert send_one_by_one(harness, NotingRenderer, idempotent=True) == 0


def test_attachments_are_not_read_ahead(harness: WorkerHarness) -> None:
    """Many of them together could fill the memory."""
    assert send_one_by_one(harness, NotingRenderer, attachments=FILE) == 0


def test_an_email_that_cannot_be_rendered_ahead_is_left_to_the_sender(
    harness: WorkerHarness,
) -> None:
    assert send_one_by_one(harness, FailingAhead) >= EMAILS - 2
