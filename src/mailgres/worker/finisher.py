"""Write outcomes, many at once: one statement for those that arrive within a few milliseconds.

An outcome that cannot be written stays in memory until the database is back. Meanwhile nothing more
is claimed, because its email still counts as held. An outcome whose row is locked by another
transaction delays no other: it is retried on its own, now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from mailgres.janitor.notify import log_dead_letter
from mailgres.model import Outcome, Result
from mailgres.outage import level
from mailgres.safe_errors import reason
from mailgres.worker.attempt_log import log_retried

if TYPE_CHECKING:
    from uuid import UUID

    from mailgres.model import Claim, Settled
    from mailgres.worker.inflight import InFlight
    from mailgres.worker.store import Store

log = logging.getLogger(__name__)

UNREACHABLE = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby that takes over, a disk that is full
    PoolTimeout,
)
"""What the driver raises while the database is unreachable."""

BLOCKED = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
"""What it raises, also as unreachable, when a statement takes too long or waits for a row."""
BLOCKED_RETRY_SECONDS = 1.0
"""Seconds until a blocked outcome is retried, at the earliest."""

CallOutcomes = Sequence[Outcome]
"""The outcomes of a call; they are written together."""


class Finisher(threading.Thread):
    """Gathers outcomes and writes them: after `linger` seconds, or when there are `most`."""

    def __init__(
        self, store: Store, held: InFlight, *, linger: float = 0.02, most: int = 500
    ) -> None:
        super().__init__(name="mailgres-finisher", daemon=True)
        self.store = store
        self.held = held
        self.linger = linger
        self.most = most
        self.counts: Counter[str] = Counter()
        self._waiting: deque[CallOutcomes] = deque()
        self._blocked: deque[tuple[float, CallOutcomes]] = deque()  # (next attempt at, …)
        self._logged_blocked: set[Claim] = set()  # each blocked outcome is logged once
        self._changed = threading.Condition()
        self._closing = False
        self._at_hand = 0

    @property
    def unwritten(self) -> int:
        """Return how many outcomes are only in memory."""
        with self._changed:
            blocked = sum(len(call) for _, call in self._blocked)
            return sum(map(len, self._waiting)) + blocked + self._at_hand

    def put(self, outcomes: CallOutcomes) -> None:
        """Add the outcomes of a call; they are written together."""
        if outcomes:
            with self._changed:
                self._waiting.append(outcomes)
                self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Write what is left and end; return whether all was written in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.join(timeout)
        return not self.is_alive()

    def run(self) -> None:
        """Write outcomes until closed and empty."""
        while not self._is_over():
            if calls := self._gather():
                self._write(calls)
            if call := self._blocked_before():
                self._write([call], hurry=True)
            self._at_hand = 0

    def _is_over(self) -> bool:
        """Wait for something to write; return whether nothing more will come."""
        with self._changed:
            wait = max(self._blocked[0][0] - time.monotonic(), 0.0) if self._blocked else None
            self._changed.wait_for(
                lambda: self._waiting or (self._closing and not self._blocked), wait
            )
            return self._closing and not self._waiting and not self._blocked

    def _gather(self) -> list[CallOutcomes]:
        """Return the next calls to write, if there are any."""
        with self._changed:
            if self._waiting and not self._closing:
                self._changed.wait_for(self._has_enough, self.linger)
            calls: list[CallOutcomes] = []
            while self._waiting and self._at_hand < self.most:
                calls.append(self._waiting.popleft())
                self._at_hand += len(calls[-1])
            return calls

    def _has_enough(self) -> bool:
        return self._closing or sum(map(len, self._waiting)) >= self.most

    def _blocked_before(self) -> CallOutcomes | None:
        """Return the outcomes blocked for longest, if their retry is due; one call at a time."""
        with self._changed:
            if not self._blocked or self._blocked[0][0] > time.monotonic():
                return None
            _, call = self._blocked.popleft()
            self._at_hand += len(call)
            return call

    def _write(self, calls: Sequence[CallOutcomes], *, hurry: bool = False) -> None:
        """Write the outcomes of calls, however long the database is away."""
        batch = [outcome for call in calls for outcome in call]
        wait = 0.05
        while True:
            try:
                not_sent = self.store.finish(batch, hurry=hurry)
            except PoolClosed:
                log.warning(
                    "outcomes not written", extra={"action": "finish", "outcomes": len(batch)}
                )
                return
            except BLOCKED as error:
                self._write_around(calls, error)
                return
            except UNREACHABLE as error:
                reported = {"action": "finish", "outcomes": len(batch), "error": reason(error)}
                log.log(level(error), "outcomes wait for the database", extra=reported)
                time.sleep(wait)
                wait = min(wait * 2, 2.0)
            except psycopg.Error as error:
                self._write_apart(batch, error)
                return
            else:
                self._settle(batch, not_sent)
                return

    def _write_around(self, calls: Sequence[CallOutcomes], error: psycopg.Error) -> None:
        """Write the halves separately, so that only the blocked outcome is postponed."""
        parts = calls if len(calls) > 1 else _parts(calls[0])
        if len(parts) > 1:
            middle = len(parts) // 2
            self._write(parts[:middle], hurry=True)
            self._write(parts[middle:], hurry=True)
            return
        email = parts[0][0].email
        if email.claim not in self._logged_blocked:
            self._logged_blocked.add(email.claim)
            log.warning(
                "an outcome waits: its row is locked",
                extra={"action": "finish", "jobId": str(email.id), "error": reason(error)},
            )
        with self._changed:
            self._at_hand -= len(parts[0])
            self._blocked.append((time.monotonic() + BLOCKED_RETRY_SECONDS, parts[0]))

    def _write_apart(self, batch: Sequence[Outcome], error: psycopg.Error) -> None:
        """Write one by one what the database refused as a whole, so that one fault stays one."""
        if len(batch) > 1:
            for outcome in batch:
                self._write([[outcome]])
            return
        log.error(
            "an outcome was refused",
            extra={"action": "finish", "jobId": str(batch[0].email.id), "sqlstate": error.sqlstate},
        )
        if batch[0] != (plain := _plain(batch[0])):
            self._write([[plain]])
        else:
            self.held.remove([plain.email])  # it becomes pending when its lease expires

    def _settle(self, batch: Sequence[Outcome], not_sent: Sequence[Settled]) -> None:
        self.counts["sent"] += len(batch) - len(not_sent)
        _log_batch(batch, not_sent)
        tried = {outcome.email.id: outcome for outcome in batch} if not_sent else {}
        for one in not_sent:
            self.counts[_kind(one)] += 1
            if _kind(one) == "retried":
                log_retried(one, tried[one.id])
            elif one.refused:
                log.warning(
                    "lease lost before the outcome was written",
                    extra={"action": "finish", "jobId": str(one.id), "sqlstate": one.refused},
                )
        self.held.remove(outcome.email for outcome in batch)
        if self._logged_blocked:
            self._logged_blocked.difference_update(outcome.email.claim for outcome in batch)
        if dead := [one.id for one in not_sent if _kind(one) == "dead"]:
            self.log_dead_letters(dead)

    def log_dead_letters(self, ids: Sequence[UUID] | None = None) -> bool:
        """Log these dead letters, or some that no process has logged; return whether any."""
        try:
            found = self.store.log_dead_letters(ids)
        except (psycopg.Error, PoolTimeout, PoolClosed):
            return False  # the notifier logs them
        for each in found:
            log_dead_letter(each, "finish")
        return bool(found)


def _parts(call: CallOutcomes) -> list[CallOutcomes]:
    """Split a call into what may be written apart: an uncertain batch is only retried whole."""
    if any(one.email.batch_id and one.result.verdict == "ambiguous" for one in call):
        return [call]
    return [[outcome] for outcome in call]


def _log_batch(batch: Sequence[Outcome], not_sent: Sequence[Settled]) -> None:
    """Log in one line how the emails of a batch ended."""
    counts = Counter({"sent": len(batch) - len(not_sent)})
    counts.update(map(_kind, not_sent))
    reported = {
        "action": "finish",
        "event": "BatchFinished",
        "emails": len(batch),
        **{kind: counts[kind] for kind in ("sent", "retried", "dead", "lost")},
        "providers": sorted({outcome.email.provider for outcome in batch}),
    }
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    log.info("batch finished: %s", shown, extra=reported)


def _kind(settled: Settled) -> str:
    """Return how an email that was not sent is counted: retried, dead or lost."""
    if settled.refused:
        return "lost"
    return "dead" if settled.status == "failed" else "retried"


def _plain(outcome: Outcome) -> Outcome:
    """Return the outcome in our own words, without the provider's text."""
    verdict = outcome.result.verdict
    if verdict == "sent":
        return Outcome(outcome.email, Result("sent", outcome.email.key))
    message = "the provider's answer cannot be stored"
    return Outcome(outcome.email, Result(verdict, code="unreadable", message=message))
