"""A worker logs the emails whose last try it made; what it cannot tell is told by others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg
import pytest

from mailgres.model import Message, Result
from mailgres.worker.store import Store
from worker.double import Double
from worker.harness import WorkerHarness


def failed(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The events in the log."""
    return [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]


class Refusing(Double):
    """A provider that will not have it."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        return [Result("permanent", code="no_mailbox", message="no such mailbox")] * len(messages)


def test_the_worker_that_made_the_last_try(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells at once, and leaves nothing to a janitor."""
    harness.use_double()
    emails = [harness.enqueue() for _ in range(3)]
    harness.drain(Refusing(harness.ledger))
    assert sorted(one.jobId for one in failed(caplog)) == sorted(map(str, emails))  # type: ignore[attr-defined]
    assert {one.action for one in failed(caplog)} == {"finish"}  # type: ignore[attr-defined]
    assert harness.value("SELECT count(*) FROM mailgres.dead_letters_to_log") == 0


def test_what_a_worker_cannot_tell_is_left_to_others(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database went away after the outcome was written, before the death was taken."""

    def away(_store: Store, _ids: object) -> None:
        raise psycopg.OperationalError("the server closed the connection")

    monkeypatch.setattr(Store, "log_dead_letters", away)
    harness.use_double()
    email = harness.enqueue()
    harness.drain(Refusing(harness.ledger))
    (event,) = failed(caplog)
    assert (event.jobId, event.action) == (str(email), "janitor.log_dead_letters")  # type: ignore[attr-defined]
