"""The parts of the worker by themselves, where a database would add nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from mailgres.model import Claim, ClaimedEmail, Outcome, Result, Settled
from mailgres.worker.finisher import Finisher
from mailgres.worker.inflight import InFlight
from mailgres.worker.lease_keeper import LeaseKeeper
from mailgres.worker.store import Store
from worker.harness import DEADLINE, until


def an_email(**fields: Any) -> ClaimedEmail:
    nothing: dict[str, Any] = dict.fromkeys(ClaimedEmail.__dataclass_fields__)
    given = {"id": uuid4(), "lease_token": uuid4(), "generation": 0, **fields}
    return ClaimedEmail(**{**nothing, **given})


def sent(email: ClaimedEmail) -> Outcome:
    return Outcome(email, Result("sent", "message"))


class TestInFlight:
    def test_the_room_for_claims_is_what_held_emails_leave(self) -> None:
        held = InFlight(3)
        assert held.wait_for_room(0) == 3
        emails = [an_email() for _ in range(3)]
        held.add(emails)
        assert held.wait_for_room(0) == 0
        held.remove(emails[:2])
        assert held.wait_for_room(0) == 2
        assert held.all() == emails[2:]

    def test_a_claimer_waits_for_room_for_several_emails(self) -> None:
        """A thread that wants more waits, and then takes what there is."""
        held, emails, got = InFlight(3), [an_email() for _ in range(3)], []
        held.add(emails)
        waiting = threading.Thread(target=lambda: got.append(held.wait_for_room(DEADLINE, 2)))
        waiting.start()
        held.remove(emails[:1])
        assert held.wait_for_room(0, 2) == 1
        held.remove(emails[1:])
        waiting.join(DEADLINE)
        assert got == [3]

    def test_the_room_for_claims_is_never_negative(self) -> None:
        held = InFlight(1)
        held.add([an_email(), an_email()])
        assert held.wait_for_room(0) == 0

    @pytest.mark.parametrize(
        "wait", [lambda held: held.wait_for_room(DEADLINE), lambda h: h.wait_until_empty(DEADLINE)]
    )
    def test_a_removed_email_wakes_a_thread_that_waits_for_room(
        self, wait: Callable[[InFlight], Any]
    ) -> None:
        held, email, got = InFlight(1), an_email(), []
        held.add([email])
        waiting = threading.Thread(target=lambda: got.append(wait(held)))
        waiting.start()
        held.remove([email])
        waiting.join(DEADLINE)
        assert got == [1]

    def test_emails_are_found_by_the_age_of_their_lease(self) -> None:
        now = 100.0
        held = InFlight(9, clock=lambda: now)
        old, young = an_email(), an_email()
        held.add([old])
        now = 105.0
        held.add([young])
        now = 110.0
        assert held.older_than(10) == [old]
        assert held.older_than(5) == [old, young]
        held.extended([old, an_email()])
        assert held.older_than(5) == [young]
        assert len(held) == 2

    def test_another_lease_of_an_email_is_held_separately(self) -> None:
        held, first = InFlight(9), an_email()
        second = an_email(id=first.id)
        held.add([first])
        held.add([second])
        held.remove([first])
        assert held.all() == [second]

    def test_an_email_may_be_removed_twice(self) -> None:
        held, email = InFlight(1), an_email()
        held.add([email])
        held.remove([email])
        held.remove([email])
        assert held.wait_until_empty(0)


@dataclass
class FakeStore:
    """Takes what is written, after failing a given number of times."""

    faults: list[Exception] = field(default_factory=list)
    refused: set[UUID] = field(default_factory=set)
    batches: list[list[Outcome]] = field(default_factory=list)
    extensions: list[list[ClaimedEmail]] = field(default_factory=list)
    lost: set[UUID] = field(default_factory=set)
    locked: set[UUID] = field(default_factory=set)
    tries: list[tuple[int, bool]] = field(default_factory=list)

    def finish(self, outcomes: Sequence[Outcome], *, hurry: bool = False) -> list[Settled]:
        self.tries.append((len(outcomes), hurry))
        if self.faults:
            raise self.faults.pop(0)
        if self.locked.intersection(outcome.email.id for outcome in outcomes):
            raise psycopg.errors.LockNotAvailable if hurry else psycopg.errors.QueryCanceled
        if any(outcome.result.provider_message_id == "bad" for outcome in outcomes):
            raise psycopg.DataError("not understood")
        self.batches.append(list(outcomes))
        return [
            Settled(one.email.id, None, None, None, None, "MG030")
            for one in outcomes
            if one.email.id in self.refused
        ]

    def last_event(self) -> int:
        return 0

    def events(self, _after: int) -> list[tuple[int, str, str, str | None]]:
        return []

    def extend(self, emails: Iterable[ClaimedEmail], _lease: timedelta) -> set[Claim]:
        if self.faults:
            raise self.faults.pop(0)
        self.extensions.append(list(emails))
        return {email.claim for email in self.extensions[-1] if email.id not in self.lost}


def finisher(store: FakeStore, held: InFlight, **options: Any) -> Finisher:
    made = Finisher(cast("Store", store), held, **options)
    made.start()
    return made


WAITS = "an outcome waits: its row is locked"


class TestFinisher:
    def test_the_finisher_gathers_outcomes_into_one_statement(self) -> None:
        """Outcomes that arrive in time are written together; earlier if there are enough."""
        store, held = FakeStore(), InFlight(99)
        emails = [an_email() for _ in range(5)]
        held.add(emails)
        writes = finisher(store, held, linger=DEADLINE, most=5)
        for email in emails:
            writes.put([sent(email)])
        assert held.wait_until_empty(DEADLINE)
        assert [len(batch) for batch in store.batches] == [5]
        assert writes.close(DEADLINE)
        assert writes.counts == {"sent": 5}

    def test_the_finisher_writes_what_is_left_when_it_closes(self) -> None:
        store, held = FakeStore(), InFlight(99)
        writes = finisher(store, held, linger=DEADLINE, most=2)
        for _ in range(5):
            writes.put([sent(an_email())])
        assert writes.close(DEADLINE)
        assert [len(batch) for batch in store.batches] == [2, 2, 1]

    def test_a_call_is_not_cut_in_two(self) -> None:
        """A crash in between would leave a half-settled batch."""
        store, held = FakeStore(), InFlight(99)
        writes = finisher(store, held, linger=DEADLINE, most=4)
        for _ in range(3):
            writes.put([sent(an_email()) for _ in range(3)])
        assert writes.close(DEADLINE)
        assert [len(batch) for batch in store.batches] == [6, 3]

    def test_outcomes_wait_for_the_database(self) -> None:
        """The outcomes are kept, and count as held, until they are written."""
        away: list[Exception] = [psycopg.OperationalError("away"), PoolTimeout("none")]
        standby = psycopg.errors.ReadOnlySqlTransaction("a standby")
        store = FakeStore([*away, psycopg.errors.QueryCanceled("slow"), standby])
        held = InFlight(99)
        email = an_email()
        held.add([email])
        writes = finisher(store, held)
        writes.put([sent(email)])
        assert held.wait_until_empty(DEADLINE)
        assert not store.faults
        assert store.batches == [[sent(email)]]
        assert writes.close(DEADLINE)

    def test_closing_the_finisher_does_not_wait_for_ever(self) -> None:
        store, held = FakeStore([psycopg.OperationalError("away")] * 50), InFlight(99)
        writes = finisher(store, held)
        writes.put([sent(an_email())])
        assert not writes.close(0.2)
        store.faults.clear()
        writes.join(DEADLINE)
        assert writes.counts == {"sent": 1}

    def test_an_outcome_whose_row_is_locked_holds_up_no_other(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It holds up none of those it came with and none that come later, and is not forgotten."""
        emails = [an_email() for _ in range(8)]
        blocked = emails[5]
        store, held = FakeStore(locked={blocked.id}), InFlight(99)
        held.add(emails)
        writes = finisher(store, held)
        writes.put([sent(email) for email in emails])
        until(lambda: held.all() == [blocked], "the others are written")
        assert store.tries[:7] == [
            (8, False), (4, True), (4, True), (2, True), (1, True), (1, True), (2, True)
        ]  # fmt: skip
        assert writes.unwritten == 1
        later = an_email()
        held.add([later])
        writes.put([sent(later)])
        until(lambda: held.all() == [blocked], "what comes later is written")
        tries = len(store.tries)
        until(lambda: len(store.tries) > tries, "it is tried again")
        assert store.tries[-1] == (1, True)
        assert not writes.close(0.0)  # it does not end without it
        store.locked.clear()
        writes.join(DEADLINE)
        assert (held.all(), writes.unwritten, writes.counts) == ([], 0, {"sent": 9})
        assert [record.message for record in caplog.records].count(WAITS) == 1

    def test_a_batch_that_may_have_arrived_stays_whole(self) -> None:
        """It can only be repeated with all that were in it."""
        batch = [an_email(batch_id=uuid4()) for _ in range(3)]
        other = an_email()
        store, held = FakeStore(locked={batch[1].id}), InFlight(99)
        held.add([*batch, other])
        writes = finisher(store, held, linger=DEADLINE, most=4)
        writes.put([Outcome(email, Result("ambiguous")) for email in batch])
        writes.put([sent(other)])
        until(lambda: held.all() == batch, "the other is written")
        assert store.batches == [[sent(other)]]
        assert writes.unwritten == 3
        store.locked.clear()
        assert writes.close(DEADLINE)
        assert [len(written) for written in store.batches] == [1, 3]

    def test_an_outcome_whose_lease_was_lost_is_counted_as_lost(self) -> None:
        email, other = an_email(), an_email()
        store, held = FakeStore(refused={email.id}), InFlight(99)
        held.add([email, other])
        writes = finisher(store, held)
        writes.put([sent(email), sent(other)])
        assert held.wait_until_empty(DEADLINE)
        assert writes.close(DEADLINE)
        assert writes.counts == {"lost": 1, "sent": 1}

    def test_an_outcome_that_cannot_be_stored_is_written_without_the_providers_words(self) -> None:
        """It is written in plain words, and the others as they are."""
        store, held = FakeStore(), InFlight(99)
        emails = [an_email() for _ in range(3)]
        held.add(emails)
        writes = finisher(store, held)
        bad = Outcome(emails[1], Result("sent", "bad"))
        writes.put([sent(emails[0]), bad, sent(emails[2])])
        assert writes.close(DEADLINE)
        assert held.wait_until_empty(0)
        written = [outcome for batch in store.batches for outcome in batch]
        plain = Outcome(emails[1], Result("sent", emails[1].key))
        assert written == [sent(emails[0]), plain, sent(emails[2])]

    def test_an_outcome_that_can_never_be_stored_is_let_go(self) -> None:
        store, held = FakeStore([psycopg.DataError("no")] * 2), InFlight(99)
        email, next_one = an_email(), an_email()
        held.add([email, next_one])
        writes = finisher(store, held)
        writes.put([sent(email)])
        until(lambda: held.all() == [next_one], "it is let go")
        writes.put([sent(next_one)])
        assert held.wait_until_empty(DEADLINE)
        assert writes.close(DEADLINE)


class TestKeeper:
    def test_leases_are_extended_after_a_third_of_their_time(self) -> None:
        now = 0.0
        store, held = FakeStore(), InFlight(9, clock=lambda: now)
        old, young = an_email(), an_email()
        held.add([old])
        now = 0.1
        held.add([young])
        now = 0.11
        keeper = LeaseKeeper(cast("Store", store), held, timedelta(seconds=0.3))
        keeper.start()
        until(lambda: store.extensions, "it extends")
        keeper.close()
        assert store.extensions == [[old]]

    def test_emails_whose_lease_is_lost_are_let_go(self, caplog: pytest.LogCaptureFixture) -> None:
        """Said once, not at every look."""
        email, lost = an_email(), an_email()
        store, held = FakeStore(lost={lost.id}), InFlight(9)
        held.add([email, lost])
        keeper = LeaseKeeper(cast("Store", store), held, timedelta(seconds=0.1))
        keeper.start()
        until(lambda: len(store.extensions) >= 3, "it goes on")
        keeper.close()
        assert held.all() == [email]
        assert [record.message for record in caplog.records] == ["leases lost"]

    def test_the_lease_keeper_goes_on_after_an_outage(self) -> None:
        store, held = (
            FakeStore([psycopg.OperationalError("away"), PoolTimeout("none")]),
            InFlight(9),
        )
        held.add([an_email()])
        keeper = LeaseKeeper(cast("Store", store), held, timedelta(seconds=0.1))
        keeper.start()
        until(lambda: store.extensions, "it extends again")
        keeper.close()
        assert not keeper.is_alive()
