"""Calls that begin together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast

import psycopg
import pytest

from mailgres.model import ClaimedEmail, Started
from mailgres.sender.attempt_starter import AttemptStarter
from mailgres.worker.store import Store
from worker.harness import DEADLINE, until
from worker.test_parts import an_email


def test_a_lease_that_was_lost_begins_nothing() -> None:
    """Claimed again meanwhile, the same email may be here twice: only one of them is ours."""
    now = an_email()
    before = an_email(id=now.id)

    class Leases:
        def start_attempts(
            self, emails: Iterable[ClaimedEmail], _lease: timedelta | None, *, checked: bool
        ) -> Started:
            assert not checked
            return Started({email.claim for email in emails if email == now}, set())

    starter = AttemptStarter(cast("Store", Leases()))
    assert starter.start([before, now]) == Started({now.claim}, set())
    assert starter.start([before]) == Started(set(), set())


def test_threads_that_start_attempts_share_a_statement() -> None:
    """While one is on its way the others gather, and go together."""
    gate, asked = threading.Event(), []

    class Slow:
        def start_attempts(
            self, emails: Iterable[ClaimedEmail], _lease: timedelta | None, *, checked: bool
        ) -> Started:
            assert not checked
            asked.append(list(emails))
            assert gate.wait(DEADLINE)
            return Started({email.claim for email in asked[-1]}, set())

    starter = AttemptStarter(cast("Store", Slow()))
    emails = [an_email() for _ in range(5)]
    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(starter.start, emails[:1])
        until(lambda: len(asked) == 1, "the first is on its way")
        rest = [threads.submit(starter.start, [email]) for email in emails[1:]]
        until(lambda: len(starter._waiting) == 4, "the others wait")
        gate.set()
        assert first.result().allowed == {emails[0].claim}
        assert [one.result().allowed for one in rest] == [{email.claim} for email in emails[1:]]
    assert [len(each) for each in asked] == [1, 4]


def test_an_error_of_start_attempts_reaches_every_waiting_thread() -> None:
    class Away:
        def start_attempts(self, *_emails: object, **_options: object) -> Started:
            raise psycopg.OperationalError("away")

    with pytest.raises(psycopg.OperationalError):
        AttemptStarter(cast("Store", Away())).start([an_email()])
