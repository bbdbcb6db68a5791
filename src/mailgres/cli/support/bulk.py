"""Long jobs: changes to many emails, each chunk in a short transaction, while workers run.

A job never waits for a locked row (it is skipped and tried once more at the end), and locks rows
only for the time of a chunk. It can end after every chunk: finished chunks are committed, and the
same command continues with the rest.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, queries
from mailgres.cli.support.keys import Keys
from mailgres.cli.support.operator import TIMEOUT, explained
from mailgres.errors import ChangedMeanwhile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import FrameType
    from uuid import UUID

    from mailgres.errors import MailgresError

QUERIES = queries.load("cli/support/bulk.sql")
CHUNK = 200
"""Emails in one transaction."""
SEARCH_TIMEOUT = "120s"
"""Time limit for a search among ten million emails."""
_EXAMPLES = 3
_AGAIN = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Skipped:
    """Emails that were skipped for one reason."""

    code: str
    message: str
    hint: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Report:
    """The result of a job."""

    chosen: int
    done: int = 0
    skipped: dict[tuple[str, str], Skipped] = field(default_factory=dict)
    ended_by: signal.Signals | None = None
    error: MailgresError | None = None

    def skip(self, key: UUID, code: str, message: str, hint: str) -> None:
        """Count a skipped email."""
        found = self.skipped.setdefault((code, message), Skipped(code, message, hint))
        found.count += 1
        if len(found.examples) < _EXAMPLES:
            found.examples.append(str(key))

    @property
    def left(self) -> int:
        """Return the number of emails that were not reached."""
        return self.chosen - self.done - sum(one.count for one in self.skipped.values())


@dataclass
class Job:
    """A statement of bulk.sql for many emails; `dry_run` rolls back every chunk."""

    connection: psycopg.Connection[Any]
    order: str
    parameters: dict[str, object]
    dry_run: bool = False
    chunk: int = CHUNK
    _along: set[UUID] = field(default_factory=set)

    def run(self, keys: Keys, progress: Callable[[int], None]) -> Report:
        """Run the job; the report says what ended it early."""
        report = Report(len(keys))
        with _ends(report):
            try:
                busy = self._pass(keys, report, progress, come_back=True)
                self._pass(busy, report, progress, come_back=False)
            except psycopg.Error as error:
                report.error = explained(error)
        return report

    def _pass(
        self, keys: Keys, report: Report, progress: Callable[[int], None], *, come_back: bool
    ) -> Keys:
        """Process the keys once; return those of locked rows, for a second pass."""
        busy, at = Keys(), 0
        while at < len(keys) and report.ended_by is None:
            chunk = keys.chunk(at, self.chunk)
            reported = self._change(chunk)
            if reported is None:
                continue  # it took too long: try smaller chunks
            at += len(chunk)
            self.chunk = min(self.chunk * 2, CHUNK)
            for key, *refusal in reported:
                if refusal[0] is None:
                    report.done += 1
                    self._along |= {key} - chunk.keys()
                elif come_back and refusal[0] == ChangedMeanwhile.sqlstate:
                    busy.add(key, chunk[key])
                else:
                    report.skip(key, *refusal)
            progress(len(reported))
        return busy

    def _change(self, chunk: dict[UUID, datetime | None]) -> list[tuple[Any, ...]] | None:
        """Change a chunk in a transaction; return None after a timeout."""
        # Emails that were retried with the rest of their batch are done already.
        keys = {key: time for key, time in chunk.items() if key not in self._along}
        reported = {"ids": list(keys), "dead_at": list(keys.values()), **self.parameters}
        for again in range(_AGAIN, -1, -1):
            try:
                with self.connection.transaction(force_rollback=self.dry_run):
                    self.connection.execute(QUERIES["limits"], {"timeout": TIMEOUT})
                    return self.connection.execute(QUERIES[self.order], reported).fetchall()
            except psycopg.errors.DeadlockDetected:
                if not again:
                    raise
            except psycopg.errors.QueryCanceled:
                if self.chunk == 1:
                    raise
                self.chunk = max(self.chunk // 4, 1)
                break
        return None


def choose(connection: psycopg.Connection[Any], query: str, **parameters: object) -> Keys:
    """Find the emails of a job in one snapshot: later emails are not changed."""
    keys = Keys()
    with connection.transaction(), connection.cursor(name="mailgres_chosen") as cursor:
        connection.execute(QUERIES["limits"], {"timeout": SEARCH_TIMEOUT})
        cursor.itersize = 10_000
        cursor.execute(QUERIES[query], parameters)
        for (key,) in cursor:
            keys.add(key)
    return keys


def ask(connection: psycopg.Connection[Any], query: str, **parameters: object) -> list[Any]:
    """Return the first column of a query's result."""
    return [row[0] for row in connection.execute(QUERIES[query], parameters)]


@contextmanager
def connected(database_url: str | None) -> Iterator[psycopg.Connection[Any]]:
    """Connect for a job; turn errors of the database into readable errors."""
    try:
        with database.connect(database_url, autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        raise explained(error) from None


@contextmanager
def _ends(report: Report) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the job after the current chunk, the second at once."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def end(number: int, _: FrameType | None) -> None:
        report.ended_by = signal.Signals(number)
        signal.signal(number, before[report.ended_by])

    for number in _SIGNALS:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
