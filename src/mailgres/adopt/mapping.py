"""The mapping: what each column and each status of a foreign queue is for us.

It is what `adopt.toml` holds, and all that the later steps of a move read: they ask the vocabulary
nothing. `ASK` in a value is a question that a person has to answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK: Final = "?"
NO_PLACE: Final = ""
QUESTIONS: Final = {
    "timezone": "In which time zone are the times that have none?",
    "recipient_sql": "Which SQL expression finds the address of a row without one?",
    "null_status": "What is a row without a status: waiting, or what else?",
    "without_next_retry": "What does a row without a time for the next attempt mean?",
}
LISTS: Final = ("recipient_email", "cc", "bcc")


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Where a value is: a column, or a place inside a column of JSON."""

    column: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " -> ".join((self.column, *self.path))


@dataclass(frozen=True, slots=True)
class Only:
    """Which rows are outgoing emails: those that have one of the values there."""

    source: Source
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Templates:
    """A table of templates, and its columns."""

    table: str
    key: str
    subject: str
    html: str | None = None
    text: str | None = None
    body: str | None = None
    """Finished neither as HTML nor as text: the old processor decides."""


@dataclass(frozen=True, slots=True)
class Log:
    """A table that says what became of an email whose row is deleted when it is done."""

    table: str
    key: str
    status: str
    meanings: dict[str, str]
    attempts: tuple[str, ...] = ()
    """Statuses that count as one failed attempt each."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One foreign queue."""

    table: str
    columns: dict[Source, str]
    """Every column, or place in JSON, with our field; NO_PLACE for what is not imported."""
    statuses: dict[str, str] = field(default_factory=dict)
    null_status: str = "unknown"
    timezone: str | None = None
    """The zone of times without one; None if there are none."""
    attempts_limit: int | None = None
    """How many failed attempts make an email dead, where no column says it."""
    lists: tuple[str, ...] = ()
    """Fields that hold several addresses."""
    priorities: dict[str, int] = field(default_factory=dict)
    only: Only | None = None
    recipient_sql: str | None = None
    """An SQL expression on the row `q`, for rows without a recipient."""
    without_next_retry: str = "waiting"
    """What a row is that waits and has no next_retry_at."""
    templates: Templates | None = None
    dead_letters: str | None = None
    """Another table with the same columns, whose rows are dead."""
    log: Log | None = None
    expires_after_minutes: int | None = None

    def source(self, name: str) -> Source | None:
        """Return where a field is."""
        return next(iter(self.sources(name)), None)

    def sources(self, name: str) -> list[Source]:
        """Return every place of a field: the first that is not null is its value."""
        return [each for each, to in self.columns.items() if to == name]

    @property
    def has_content(self) -> bool:
        """Return whether rows hold finished text."""
        return any(self.source(each) for each in ("html", "text", "body"))

    def questions(self) -> Iterator[tuple[str, str]]:
        """Yield what a person has to answer: the key in the file, and the question."""
        asked = [source for source, name in self.columns.items() if name == ASK]
        yield from ((f"columns: {source}", "Which of our fields is it?") for source in asked)
        if not self.source("recipient_email") and not self.recipient_sql:
            yield "columns", "Which column has the address? Give it the value recipient_email."
        if not self.source("id"):
            yield "columns", "Which column identifies a row? Give it the value id."
        unclear = [status for status, what in self.statuses.items() if what == ASK]
        yield from ((f"statuses: {each}", f"What does {each!r} mean?") for each in unclear)
        for name, question in QUESTIONS.items():
            if getattr(self, name) == ASK:
                yield name, question
        if self.only is not None and ASK in self.only.values:
            yield "only", "Which of the values are outgoing emails?"


@dataclass(frozen=True, slots=True)
class Mapping:
    """All queues that are to be adopted."""

    queues: tuple[Queue, ...]

    def questions(self) -> list[tuple[str, str]]:
        """Return the open questions, each with its table and key."""
        return [(f"{q.table}, {key}", text) for q in self.queues for key, text in q.questions()]
