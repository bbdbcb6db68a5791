"""Any order of events: the queue never does what the model says may not be true.

The model (support/letters.py) is independent of the SQL. The provider is simulated: with keys it
takes a second call of the same generation as the first; without keys every call is a copy.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.letters import LEASE, Letter
from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue, report

PLACES = st.integers(0, 7)
MINUTE = timedelta(minutes=1)
PREPARE = "UPDATE mailgres.providers SET failure_threshold = 1000000"
ROWS = """
    SELECT id, status::text, lease_token, uncertain_since IS NOT NULL AS uncertain, generation::int,
           next_retry_at, retries <= max_retries AS within
    FROM email_queue
"""


class Call:
    """An attempt that a worker has in hand, whether it still holds the email or not."""

    def __init__(self, letter: Letter, email: Any) -> None:
        self.letter = letter
        self.email = email
        self.started = letter.keyed
        self.made = False

    @property
    def is_current(self) -> bool:
        return bool(self.letter.token == self.email.lease_token)


class Machine(RuleBasedStateMachine):
    """Every rule is something that happens to a queue; the invariant compares rows and model."""

    keyed: ClassVar[bool]
    queue: ClassVar[Queue]

    def __init__(self) -> None:
        super().__init__()
        self._example = self.queue.conn.transaction(force_rollback=True)
        self._example.__enter__()
        self.clock = Clock(self.queue.conn)
        self.queue.use_provider(WITH_KEYS if self.keyed else WITHOUT_KEYS)
        self.queue.run(PREPARE)
        self.letters: dict[UUID, Letter] = {}
        self.calls: list[Call] = []
        self.sent_keys: set[tuple[UUID, int]] = set()

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self._example.__exit__(None, None, None)

    # rules

    @rule(resends=st.booleans(), later=st.booleans())
    def enqueue(self, *, resends: bool, later: bool) -> None:
        due = self.clock.now + (5 * MINUTE if later else timedelta())
        queue_id = self.queue.enqueue(
            RESEND if resends else HOLD, max_retries=2, scheduled_for=due if later else None
        )
        self.letters[queue_id] = Letter(queue_id, self.keyed, resends, due)

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        self.reap()
        now = self.clock.now
        can = {key for key, letter in self.letters.items() if letter.may_be_claimed(now)}
        claimed = self.queue.claim("w", count, f"{LEASE.total_seconds()} seconds")
        assert {email.id for email in claimed} <= can
        assert claimed or all(self.letters[key].may_be_given_up(now) for key in can)
        for email in claimed:
            letter = self.letters[email.id]
            letter.claim(email.lease_token, now)
            self.calls.append(Call(letter, email))
        for letter in (self.letters[key] for key in can - {email.id for email in claimed}):
            if letter.may_be_given_up(now) and self.row(letter).status == "failed":
                letter.release("failed")

    @precondition(lambda self: any(not call.started for call in self.calls))
    @rule(place=PLACES)
    def start(self, place: int) -> None:
        """Only without keys: with a key the claim is enough."""
        ready = [call for call in self.calls if not call.started]
        self.begin(ready[place % len(ready)])

    def begin(self, call: Call) -> None:
        now = self.clock.now
        letter = call.letter
        may = call.is_current and letter.lease_until is not None and letter.lease_until > now
        allowed = self.queue.start_attempts([call.email])
        assert allowed == ({letter.id} if may else set())
        if may:
            letter.started_at, letter.lease_until = now, now + LEASE
            call.started = True
        elif call.is_current:  # too late: it was given back
            letter.release("pending")
            self.calls.remove(call)

    @precondition(lambda self: any(call.started and not call.made for call in self.calls))
    @rule(place=PLACES)
    def reach_the_provider(self, place: int) -> None:
        """A worker that started calls, however slow it is."""
        ready = [call for call in self.calls if call.started and not call.made]
        self.deliver(ready[place % len(ready)])

    @precondition(lambda self: self.calls)
    @rule(place=PLACES, fault=st.sampled_from(["transient", "permanent", "ambiguous", "config"]))
    def finish(self, place: int, fault: str) -> None:
        call = self.call(place)
        self.calls.remove(call)
        outcome = "sent" if call.made else fault
        held = call.is_current
        (done,) = self.queue.finish(report(call.email, outcome))
        assert (done.refused == "MG030") == (not held)
        if held:
            self.settle(call.letter, outcome)

    @rule(seconds=st.sampled_from([1, 30, 61, 400, 90_000]))
    def wait(self, seconds: int) -> None:
        self.clock.forward(timedelta(seconds=seconds))

    @rule()
    def reap(self) -> None:
        now = self.clock.now
        lost = [each for each in self.letters.values() if each.is_lost(now)]
        assert self.queue.reap() == len(lost)
        for letter in lost:
            letter.lose_lease(now)

    @precondition(lambda self: self.letters)
    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        letter = self.letter(place)
        if self.refused(letter.refusal_of_cancel(), "SELECT cancel_email(%s)", letter.id):
            return
        letter.release("cancelled")

    @precondition(lambda self: self.letters)
    @rule(place=PLACES, accepts=st.booleans())
    def retry(self, place: int, *, accepts: bool) -> None:
        letter, now = self.letter(place), self.clock.now
        refusal = letter.refusal_of_retry(now, accepts_duplicate=accepts)
        if self.refused(refusal, "SELECT retry_email(%s, %s)", letter.id, accepts):
            return
        kept = letter.key_protects(now) if letter.perhaps else letter.state == "pending"
        letter.reopen(now, new_key=not kept)

    @precondition(lambda self: any(each.copies for each in self.letters.values()))
    @rule(place=PLACES, failed=st.booleans())
    def record_event(self, place: int, *, failed: bool) -> None:
        """The provider reports about an email that it has."""
        known = [each for each in self.letters.values() if each.copies]
        letter = known[place % len(known)]
        event = "failed" if failed else "delivered"
        query = "SELECT record_email_event(NULL, %s, p_queue_id => %s)"
        self.queue.run(query, event, letter.id)
        status = self.queue.value("SELECT status::text FROM email_queue WHERE id = %s", letter.id)
        if failed:
            letter.allowed += 1  # the provider says that there is one copy less
        elif letter.perhaps or letter.started_at:
            assert status == "sent"
        if status != letter.state:
            assert status in (("failed",) if failed else ("sent",))
            letter.release(status)
            letter.perhaps = None

    @precondition(lambda self: self.letters)
    @rule(place=PLACES, status=st.sampled_from(["pending", "failed"]))
    def change_by_hand(self, place: int, status: str) -> None:
        letter, now = self.letter(place), self.clock.now
        unsafe = (letter.perhaps or letter.started_at) and not letter.key_protects(now)
        self.queue.run("UPDATE email_queue SET status = %s WHERE id = %s", status, letter.id)
        if status == letter.state:
            return
        if status == "failed":
            letter.release("failed")
        elif unsafe and not (letter.started_at and letter.resends):
            return  # left as it is, with a warning
        else:
            letter.allowed += letter.state == "sent" or bool(unsafe)
            letter.release("pending")
            letter.due = self.row(letter).next_retry_at

    @precondition(lambda self: self.letters)
    @rule(place=PLACES, minutes=st.sampled_from([-5, 5]))
    def change_time_by_hand(self, place: int, minutes: int) -> None:
        letter, due = self.letter(place), self.clock.now + minutes * MINUTE
        self.queue.run("UPDATE email_queue SET next_retry_at = %s WHERE id = %s", due, letter.id)
        letter.due = due

    # what must be true

    @invariant()
    def rows_are_what_the_model_says(self) -> None:
        rows = {row.id: row for row in self.queue.rows(ROWS)}
        assert rows.keys() == self.letters.keys(), "no email is lost"
        for key, letter in self.letters.items():
            row = rows[key]
            assert row.status == letter.state
            assert row.lease_token == letter.token
            assert row.within
            assert row.generation == letter.generation
            if letter.state != "sending":
                assert row.uncertain == (letter.perhaps is not None)
            assert letter.copies <= letter.allowed, "sent twice, and nobody accepted it"

    def drain(self) -> None:
        """Whatever happened, everything ends: sent, dead or cancelled."""
        for _ in range(60):
            self.clock.forward(LEASE + 5 * MINUTE)
            self.claim(4)
            for call in [each for each in self.calls if each.is_current]:
                if not call.started:
                    self.begin(call)
                self.deliver(call)
                self.finish(self.calls.index(call), "transient")
            self.rows_are_what_the_model_says()
            if not {"pending", "sending"} & {each.state for each in self.letters.values()}:
                return
        raise AssertionError([each for each in self.letters.values() if each.state == "pending"])

    # helpers

    def deliver(self, call: Call) -> None:
        key = (call.letter.id, call.email.generation)
        if not (self.keyed and key in self.sent_keys):
            call.letter.copies += 1
        self.sent_keys.add(key)
        call.made = True

    def settle(self, letter: Letter, outcome: str) -> None:
        """The outcome of a current attempt."""
        row = self.row(letter)
        unclear = outcome == "ambiguous"
        before = letter.perhaps
        if outcome != "sent" and not unclear:
            letter.started_at = None  # definitely not sent by this attempt
        if outcome == "sent":
            assert row.status == "sent"
        elif unclear and letter.must_be_held():
            assert row.status == "failed"
            letter.started_at = letter.started_at or self.clock.now
        else:
            assert row.status in ("pending", "failed")
            if unclear:
                letter.started_at = letter.started_at or self.clock.now
                letter.allowed += not letter.keyed
        letter.release(row.status)
        if outcome == "permanent" and letter.keyed:
            letter.perhaps = None  # the same call has the same answer
        elif outcome != "sent":
            letter.perhaps = letter.perhaps or before
        letter.losses = 0 if outcome != "sent" else letter.losses
        letter.due = row.next_retry_at

    def refused(self, refusal: str | None, query: str, *given: object) -> bool:
        """Run a query that is refused with this SQLSTATE, or not at all."""
        try:
            with self.queue.conn.transaction():
                self.queue.run(query, *given)
        except psycopg.Error as error:
            if error.sqlstate != refusal:
                raise
            return True
        assert refusal is None, f"not refused with {refusal}"
        return False

    def row(self, letter: Letter) -> Any:
        return next(row for row in self.queue.rows(ROWS) if row.id == letter.id)

    def letter(self, place: int) -> Letter:
        return list(self.letters.values())[place % len(self.letters)]

    def call(self, place: int) -> Call:
        return self.calls[place % len(self.calls)]


EXAMPLES = [pytest.param(15, id="some"), pytest.param(150, id="many", marks=pytest.mark.long)]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])
def test_no_order_of_events_breaks_the_model(queue: Queue, *, keyed: bool, examples: int) -> None:
    machine = type("ThisMachine", (Machine,), {"keyed": keyed, "queue": queue})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
