"""A worker logs the emails that die by its attempts; what it cannot log, another process does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from mailgres.model import Message, Result
from mailgres.worker.store import Store
from worker.double import Double
from worker.harness import WorkerHarness


def failed(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the events in the log."""
    return [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]


class Refusing(Double):
    """A provider that rejects every email."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        return [Result("permanent", code="no_mailbox", message="no such mailbox")] * len(messages)


def test_the_worker_that_made_the_last_attempt_logs_the_dead_letter_at_once(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.use_double()
    emails = [harness.enqueue() for _ in range(3)]
    harness.drain(Refusing(harness.ledger))
    assert sorted(one.jobId for one in failed(caplog)) == sorted(map(str, emails))  # type: ignore[attr-defined]
    assert {one.action for one in failed(caplog)} == {"finish"}  # type: ignore[attr-defined]
    assert harness.value("SELECT count(*) FROM mailgres.dead_letters_to_log") == 0


def test_a_dead_letter_that_a_worker_could_not_log_is_logged_at_the_end_of_its_run(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database went away after the outcome was written, before the dead letter was taken."""
    take = Store.log_dead_letters

    def away(store: Store, ids: Sequence[UUID] | None) -> list[dict[str, Any]]:
        if ids is not None:
            raise psycopg.OperationalError("the server closed the connection")
        return take(store, ids)

    monkeypatch.setattr(Store, "log_dead_letters", away)
    harness.use_double()
    email = harness.enqueue()
    harness.drain(Refusing(harness.ledger))
    (event,) = failed(caplog)
    assert event.jobId == str(email)  # type: ignore[attr-defined]
