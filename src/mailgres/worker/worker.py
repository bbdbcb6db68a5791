"""The pipeline put together: one claimer, a pool of senders, one finisher, one lease keeper."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mailgres.errors import DatabaseUnreachable
from mailgres.model import Outcome, Result
from mailgres.outage import level
from mailgres.providers import NotMade
from mailgres.safe_errors import reason, where
from mailgres.worker.claimer import Claimer
from mailgres.worker.finisher import UNREACHABLE, Finisher
from mailgres.worker.inflight import InFlight
from mailgres.worker.lease_keeper import LeaseKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta
    from uuid import UUID

    from mailgres.model import ClaimedEmail, Message
    from mailgres.sender import Sender
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of the emails that a run claimed; `claimed` is the sum of the others.

    `lost`: their lease was lost, or is left to expire: another worker settles them.
    `given_back`: unchanged, for the next claim.
    `refused`: suppressed, expired, cancelled or paused since the claim, so no call was made.
    """

    claimed: int
    sent: int
    retried: int
    dead: int
    lost: int
    given_back: int
    refused: int
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """Return it for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    """The emails of one call; `rendered` is set if that was done before a sender was free."""

    emails: list[ClaimedEmail]
    rendered: Sequence[Message | Outcome] | None = None


class Worker:
    """Works on the queue until stopped, or until the queue is empty."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        lease: timedelta,
        concurrency: int = 10,
        batch_size: int = 10,
        poll: float = 1.0,
        grace: float = 30.0,
        stopping: threading.Event | None = None,
    ) -> None:
        self.store = store
        self.sender = sender
        self.batch_size = batch_size
        self.grace = grace
        self.stopping = stopping or threading.Event()
        largest = max(p.capabilities.batch_size for p in sender.providers.values())
        # Each sender has one call under way and one waiting: more would only use up their leases.
        # The rest have been sent, and wait for their outcome to be written.
        self.held = InFlight(max(batch_size, 2 * concurrency * (largest + 1)))
        self.claimer = Claimer(store, list(sender.providers), lease, poll)
        self.finisher = Finisher(store, self.held)
        self.keeper = LeaseKeeper(store, self.held, lease)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._senders = [
            threading.Thread(target=self._send_jobs, name=f"mailgres-sender-{n}", daemon=True)
            for n in range(concurrency)
        ]
        self._claimed = 0
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._kept = 0
        self._ends_at = math.inf
        self._gives_up_at = math.inf
        self._waited = 0.0
        self._sent_before_wait = 0

    def stop(self) -> None:
        """Stop: claim nothing more and finish what is in flight."""
        self.stopping.set()

    def run(self) -> Summary:
        """Work until `stop` is called."""
        return self._work(until_empty=False)

    def drain(self, *, once: bool = False, max_seconds: float | None = None) -> Summary:
        """Work until nothing is due, or for one claim, or for at most `max_seconds`."""
        if max_seconds:
            self._ends_at = time.monotonic() + max_seconds
        done = self._work(until_empty=True, once=once)
        # A claim also settles expired and crashed emails, and there may be no notifier to log that.
        while self.finisher.log_dead_letters():
            pass
        return done

    def _work(self, *, until_empty: bool, once: bool = False) -> Summary:
        start = time.monotonic()
        self.keeper.events.log_new()  # skip the events of earlier runs
        for thread in (self.finisher, self.keeper, *self._senders):
            thread.start()
        try:
            while not self._is_over():
                if self._claim():
                    if once:
                        break
                elif self._nothing_left() if until_empty else self._rest():
                    break
            while not self._is_over() and not self.held.wait_until_empty(LOOK_SECONDS):
                pass  # claimed emails are finished, unless a second signal arrives
        finally:
            self._shut_down()
        self._raise_if_unwritten()
        return self._summary(round(time.monotonic() - start, 3))

    def _summary(self, seconds: float) -> Summary:
        """Return what became of all claimed emails."""
        with self._counting:
            counts = self.finisher.counts + self._counts
        # The others have no outcome: a call does not end, or another worker has their lease.
        known = counts["sent"] + counts["retried"] + counts["dead"]
        known += counts["given_back"] + counts["refused"]
        return Summary(
            claimed=self._claimed,
            sent=counts["sent"],
            retried=counts["retried"],
            dead=counts["dead"],
            lost=self._claimed - known,
            given_back=counts["given_back"],
            refused=counts["refused"],
            seconds=seconds,
        )

    def _count(self, what: str, emails: int) -> None:
        """Count emails without an outcome; several senders call this."""
        with self._counting:
            self._counts[what] += emails

    def _is_over(self) -> bool:
        return self.stopping.is_set() or time.monotonic() >= self._ends_at

    def _claim(self) -> bool:
        """Claim as many as there is room for; return whether to continue immediately."""
        # A claim costs the same for a few as for many.
        room = self.held.wait_for_room(0.2, min(self.batch_size, self.held.capacity // 2))
        if not room:
            return True
        emails = self.claimer.claim(min(self.batch_size, room))
        self._claimed += len(emails)
        self.held.add(emails)
        if emails and emails[0].alone:
            self._send_alone(emails)
            return True
        self._put_jobs(emails)
        return bool(emails)

    def _send_alone(self, emails: Sequence[ClaimedEmail]) -> None:
        """Send emails that a worker held when it died, while nothing else is in flight.

        If one of them kills this worker too, it takes no other email with it.
        """
        while not self.held.wait_until_at_most(len(emails), LOOK_SECONDS):
            if self._is_over():
                self._give_back(emails)
                return
        self._put_jobs(emails)
        while not self.held.wait_until_empty(LOOK_SECONDS) and not self._is_over():
            pass

    def _put_jobs(self, emails: Sequence[ClaimedEmail]) -> None:
        for batch in self._batches(emails):
            # Jobs that wait mean that no sender is free.
            busy = not self._jobs.empty() and not self._is_over()
            self._jobs.put(Job(batch, self.sender.render_ahead(batch) if busy else None))

    def _rest(self) -> bool:
        """Wait until there may be work; always true, because a run never ends by itself."""
        self.claimer.rest(self.stopping)
        return False

    def _nothing_left(self) -> bool:
        """Wait for the emails in flight; they may become claimable again immediately."""
        if self.claimer.gave_up:
            raise DatabaseUnreachable("The database went away")
        if self.claimer.in_trouble:
            return self._rest()
        empty = self.held.wait_until_empty(0.5) and not self._claim()
        return empty and not self._wait_for_rate() and not self.claimer.in_trouble

    def _wait_for_rate(self) -> bool:
        """Wait for a rate limit, if emails wait only for that and it ends soon.

        Do not wait for a provider that keeps rate-limiting: nothing was sent in between.
        """
        try:
            wait = self.store.rate_limit_ends_in()
        except UNREACHABLE:
            return True
        if self.finisher.counts["sent"] > self._sent_before_wait:
            self._sent_before_wait, self._waited = self.finisher.counts["sent"], 0.0
        seconds = max(wait.total_seconds(), 0.001) if wait is not None else math.inf
        self._waited += seconds
        if self._waited > RATE_LIMIT_WAIT_SECONDS:
            return False
        self.stopping.wait(seconds)
        return True

    def _batches(self, emails: Sequence[ClaimedEmail]) -> Iterator[list[ClaimedEmail]]:
        """Group emails as their providers take them; a fixed batch is always in the same order."""
        groups: dict[tuple[str, UUID | None], list[ClaimedEmail]] = defaultdict(list)
        for email in emails:
            groups[email.provider, email.batch_id].append(email)
        for (name, batch), group in groups.items():
            can = self.sender.providers[name].capabilities
            if batch is not None:
                yield sorted(group, key=lambda email: email.id)
                continue
            size = 1 if can.fixed_batches else can.batch_size
            for start in range(0, len(group), size):
                yield group[start : start + size]

    def _send_jobs(self) -> None:
        """Send jobs until one is None; each sender thread runs this."""
        while (job := self._jobs.get()) is not None:
            self._send(job)

    def _send(self, job: Job) -> None:
        """Send a job. If our own code fails, send each email alone, so that it harms no other.

        A fixed batch has one key and cannot be split here: the next claim does that.
        """
        emails = job.emails
        try:
            outcomes = self.sender.send(emails, job.rendered)
        except (*UNREACHABLE, NotMade) as error:
            # Whether start_attempts committed or not, the call was not made, or does not count.
            log.log(level(error), "not sent", extra=_about("send", emails, error))
            self._give_back(emails)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker goes on
            # Faults of the call itself are outcomes: here it was not made.
            place = where(error)
            log.error("emails not prepared: %s", place, extra=_about("send", emails))  # noqa: TRY400 - not its text, which may quote an address
            if len(emails) == 1 or emails[0].batch_id is not None:
                self.finisher.put([Outcome(email, _not_prepared(email, place)) for email in emails])
            else:
                for email in emails:
                    self._send(Job([email]))
        else:
            reported = {outcome.email.id for outcome in outcomes}
            self.finisher.put(outcomes)
            refused = [email for email in emails if email.id not in reported]
            self._count("refused", len(refused))
            self.held.remove(refused)
            self.sender.learn(emails[0].provider)

    def _shut_down(self) -> None:
        """Finish what is in flight for as long as the grace allows, and give back the rest."""
        if self.stopping.is_set():  # otherwise the run is complete
            log.info("stopping", extra={"action": "stop", "emails": len(self.held)})
        self._gives_up_at = time.monotonic() + self.grace
        not_started = self._not_started()
        for _ in self._senders:
            self._jobs.put(None)
        self._give_back(not_started)
        for thread in self._senders:
            thread.join(self._time_left())
        self.finisher.close(max(self._time_left(), 1.0))
        self.keeper.close(max(self._time_left(), 1.0))
        self.claimer.close()

    def _time_left(self) -> float:
        """Return the seconds until this worker must have stopped."""
        return max(self._gives_up_at - time.monotonic(), 0.0)

    def _raise_if_unwritten(self) -> None:
        """Raise an error if the database was away at the end and misses outcomes."""
        left = {
            "outcomes not written": self.finisher.unwritten,
            "emails not given back": self._kept,
        }
        if any(left.values()):
            reported = ", ".join(f"{count} {what}" for what, count in left.items() if count)
            raise DatabaseUnreachable(
                f"The database was away when the worker ended: {reported}", LEFT
            )

    def _not_started(self) -> list[ClaimedEmail]:
        """Take back the jobs that no sender has taken."""
        emails: list[ClaimedEmail] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return emails
            emails += job.emails if job else []

    def _give_back(self, emails: Sequence[ClaimedEmail]) -> None:
        """Give back emails that were not sent, as soon as the database answers."""
        while emails:
            try:
                timeout = min(self._time_left(), self.store.pool.timeout)
                self._count("given_back", len(self.store.give_back(emails, timeout)))
                break
            except UNREACHABLE as error:
                log.log(level(error), "not given back", extra=_about("give_back", emails, error))
                if self._time_left() == 0:
                    self._kept += len(emails)
                    break  # they become pending when their lease expires
                time.sleep(min(0.2, self._time_left()))
        self.held.remove(emails)


def _about(
    action: str, emails: Sequence[ClaimedEmail], error: Exception | None = None
) -> dict[str, object]:
    """Return the keys of a log line."""
    reported: dict[str, object] = {"action": action, "emails": len(emails)}
    return reported if error is None else {**reported, "error": reason(error)}


LEFT = (
    "Nothing is lost: when the leases expire, a worker claims these emails again. "
    "Uncertain emails are retried under their idempotency key, or as their template says."
)
LOOK_SECONDS = 0.2
"""Seconds between checks whether a run is over."""
RATE_LIMIT_WAIT_SECONDS = 10.0
"""Seconds that a run until the queue is empty waits for a rate limit."""


def _not_prepared(email: ClaimedEmail, place: str) -> Result:
    """Return the outcome of a fault of our own; the emails of a batch go alone the next time."""
    return Result(
        "transient",
        code="not_prepared",
        message="the email could not be prepared: see the log",
        detail=place,
        called=False,
        batch_refused=email.batch_id is not None,
    )
