"""How long a claimer that finds nothing waits, by itself: a database would add nothing."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, cast

from mailgres.errors import DatabaseUnreachable
from mailgres.model import ClaimedEmail, Result
from mailgres.outage import Outage
from mailgres.worker.claimer import Claimer
from mailgres.worker.store import Store


class IdleStore:
    """An empty queue, in which an email may be due later."""

    listens = False

    def __init__(self, until_due: timedelta | None = None) -> None:
        self.until_due = until_due
        self.away = False
        self.outage = Outage()

    def connect(self) -> Any:
        if self.away:
            raise DatabaseUnreachable
        return self

    def claim(self, *_: Any) -> list[ClaimedEmail]:
        return []

    def mark_asleep(self, *_: Any) -> timedelta | None:
        return self.until_due

    def mark_awake(self, *_: Any) -> None:
        """No worker is registered."""

    def limits(self) -> None: ...

    def check(self) -> Result:
        return Result("sent")

    def close(self) -> None:
        """Nothing is open."""


class Waits(threading.Event):
    """Records how long a worker would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


def rests(store: IdleStore, poll: float, times: int) -> list[float]:
    """Return how long a claimer that finds nothing waits each time."""
    claimer = Claimer(cast("Store", store), ["capture"], timedelta(seconds=60), poll)
    waits = Waits()
    for _ in range(times):
        assert claimer.claim(10) == []
        claimer.rest(waits)
    assert claimer.gave_up == store.away
    return waits.seconds


def test_an_idle_worker_claims_again_before_it_sleeps_deeply() -> None:
    *glances, deep, deeper = rests(IdleStore(), 1.0, 6)
    assert glances == [0.0, 0.005, 0.025, 0.1]
    assert 0.8 <= deep <= 1.2
    assert 0.8 <= deeper <= 1.2
    assert deep != deeper


def test_a_sleeping_worker_renews_its_registration() -> None:
    """However rarely it polls: a worker that is not registered is not woken."""
    assert rests(IdleStore(), 1000.0, 5)[-1] <= 30


def test_a_claimer_wakes_when_an_email_is_due() -> None:
    assert rests(IdleStore(timedelta(seconds=7)), 20.0, 5)[-1] == 7


def test_a_worker_does_not_spin_for_locked_emails() -> None:
    """Due emails that are locked are looked for a few times, and then at the usual interval."""
    *glances, deep = rests(IdleStore(timedelta(seconds=-7)), 20.0, 5)
    assert glances == [0.0, 0.005, 0.025, 0.1]
    assert 16 <= deep <= 24


def test_a_worker_claims_at_once_when_an_email_becomes_due() -> None:
    """Between a claim and the question when to come back; however long it has been idle."""
    store = IdleStore()
    claimer = Claimer(cast("Store", store), ["capture"], timedelta(seconds=60), 20.0)
    waits = Waits()
    for _ in range(9):
        claimer.claim(10)
        claimer.rest(waits)
    store.until_due = timedelta(0)
    claimer.claim(10)
    claimer.rest(waits)
    assert waits.seconds[-2] >= 16
    assert waits.seconds[-1] == 0


def test_a_claimer_waits_longer_and_longer_for_an_unreachable_database() -> None:
    store = IdleStore()
    store.away = True
    waited = rests(store, 1.0, 8)
    assert waited[0] < 0.3
    assert waited[1] < waited[3] < waited[5]
    assert max(waited) <= 6
