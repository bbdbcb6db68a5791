"""Begins calls together: threads that are ready at the same moment share one statement.

While one `begin` is on its way, the others gather, and the next takes all of them. Nobody waits for
company: a thread that is alone goes at once.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Claim, Email
    from mailgres.store import Store


class Begins:
    """Marks calls as begun, for many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Email], Future[set[Claim]]]] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def begin(self, emails: Sequence[Email]) -> set[Claim]:
        """The emails that may be sent. What the database raises, everybody gets who shared it."""
        mine: Future[set[Claim]] = Future()
        with self._lock:
            self._waiting.append((emails, mine))
        with self._turn:
            if not mine.done():
                self._begin_all()
        return mine.result()

    def _begin_all(self) -> None:
        with self._lock:
            together, self._waiting = self._waiting, []
        try:
            begun = self._store.begin([email for emails, _ in together for email in emails])
        except BaseException as error:
            for _, future in together:
                future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for emails, future in together:
                future.set_result({email.claim for email in emails} & begun)
