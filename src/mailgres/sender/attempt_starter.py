"""Start attempts together: threads that are ready at the same moment share one statement.

While one `start_attempts` is under way, the others gather, and the next statement takes all of
them. No thread waits for company: one that is alone goes immediately. A waiting thread is woken
once, by its result: if all of them queued for a lock, each would have to be woken before the next
statement could start.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mailgres.model import Started

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from mailgres.model import ClaimedEmail
    from mailgres.worker.store import Store


class Request:
    """A thread that wants to start attempts, and its result."""

    __slots__ = ("emails", "reported")

    def __init__(self, emails: Sequence[ClaimedEmail]) -> None:
        self.emails = emails
        # What was started, or the error; None: it is this thread's turn to ask for all.
        self.reported: SimpleQueue[Started | BaseException | None] = SimpleQueue()


class AttemptStarter:
    """Marks attempts as started, for many threads."""

    def __init__(self, store: Store, lease: timedelta | None = None) -> None:
        self._store = store
        self._lease = lease
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._under_way = False

    def start(self, emails: Sequence[ClaimedEmail]) -> Started:
        """Return which of the emails may be sent, or that their provider has to be checked first.

        An error of the database is raised in every thread that shared the statement.
        """
        mine = Request(emails)
        with self._lock:
            self._waiting.append(mine)
            must_wait, self._under_way = self._under_way, True
        answer = (mine.reported.get() if must_wait else None) or self._start_all()
        if isinstance(answer, BaseException):
            raise answer
        ours = {email.claim for email in emails}
        return Started(answer.allowed & ours, answer.check_first & ours)

    def _start_all(self) -> Started | BaseException:
        """Start the attempts of all waiting threads, this one included."""
        with self._lock:
            together, self._waiting = self._waiting, []
        answer: Started | BaseException
        try:
            emails = [email for one in together for email in one.emails]
            answer = self._store.start_attempts(emails, self._lease, checked=False)
        except BaseException as error:  # noqa: BLE001 - each of them raises it
            answer = error
        self._pass_on()
        for one in together:
            one.reported.put(answer)
        return answer

    def _pass_on(self) -> None:
        """Let one of the threads that arrived meanwhile ask next."""
        with self._lock:
            if self._waiting:
                self._waiting[0].reported.put(None)
            else:
                self._under_way = False
