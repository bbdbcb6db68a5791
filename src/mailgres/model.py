"""The values that go through the worker: an email as claimed, as sent, and what came of it.

All of them are frozen: a step of the pipeline makes a new value out of the one before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

Claim = tuple["UUID", "UUID"]
"""The id of an email and the token of its lease."""

Verdict = Literal[
    "sent", "transient", "rate", "quota", "config", "permanent", "ambiguous", "uncertain"
]
"""How a try ended: sent, or the class of the fault (see docs/lifecycle.md)."""


@dataclass(frozen=True, slots=True)
class ClaimedEmail:
    """An email under the lease of this worker. The fields are columns of `email_queue`.

    `batch_id`: the batch it was claimed in; None if its call is its own. A batch is repeated whole
    and under the key of the batch, because its provider knows no other.
    `alone`: a worker died holding it, so it is sent while this worker holds nothing else.
    """

    id: UUID
    lease_token: UUID
    tenant_id: str
    template_type: str
    template_version: int | None
    recipient_email: str
    payload: str
    retries: int
    max_retries: int
    generation: int
    provider: str
    priority: int
    from_email: str | None
    reply_to: str | None
    subject: str | None
    html: str | None
    text: str | None
    headers: dict[str, str] | None
    tags: dict[str, str] | None
    also_to: list[str] | None
    cc: list[str] | None
    bcc: list[str] | None
    has_attachments: bool
    batch_id: UUID | None = None
    alone: bool = False

    @property
    def to(self) -> tuple[str, ...]:
        """All To addresses, the email's own first."""
        return self.recipient_email, *(self.also_to or ())

    @property
    def others(self) -> tuple[str, ...]:
        """Everybody besides the recipient who gets it: further To addresses and copies."""
        return (*(self.also_to or ()), *(self.cc or ()), *(self.bcc or ()))

    @property
    def claim(self) -> Claim:
        """The email under this very claim: after a lost lease it may be claimed again."""
        return self.id, self.lease_token

    @property
    def key(self) -> str:
        """The idempotency key of its call: the same for every try of this generation."""
        return f"mailgres/{self.id}/{self.generation}"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with an email."""

    filename: str
    content_type: str
    content_id: str | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """An email rendered: all that a provider needs."""

    email: ClaimedEmail
    from_email: str
    reply_to: str | None
    subject: str
    html: str | None
    text: str | None
    attachments: Sequence[Attachment] = ()


LONGEST = {"code": 100, "message": 2000, "detail": 4000}
"""Characters of what a provider said that are read and kept."""


@dataclass(frozen=True, slots=True)
class RefusedCopy:
    """A recipient besides the first whom the provider refused, though it took the message."""

    code: str
    message: str
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a provider said to one message. A text in `detail` is stored for operators only.

    `account`: the fault is one of the whole account, not of this message.
    `pinned`: an earlier call may have arrived, so only this provider may try again.
    `suppress`: the address does not exist and must not be written to again.
    `batch_refused`: its whole batch was refused, perhaps for what is wrong with another message.
    `retry_after`: how long the provider said to wait. A duration: clocks differ.
    `called`: false if the fault is ours and the provider was not asked.
    `refused_copies`: those whom a sent message does not reach.
    `untried`: of a check, why it could not try the credentials.
    """

    verdict: Verdict
    provider_message_id: str | None = None
    code: str | None = None
    message: str | None = None
    detail: str | None = None
    retry_after: timedelta | None = None
    account: bool = False
    pinned: bool = False
    suppress: bool = False
    batch_refused: bool = False
    called: bool = True
    refused_copies: tuple[RefusedCopy, ...] = ()
    untried: str | None = None

    def cut(self) -> Result:
        """The same with texts of a bounded length, whoever wrote them and however long they are."""
        reported = {name: getattr(self, name) for name in LONGEST}
        if not any(text and len(text) > LONGEST[name] for name, text in reported.items()):
            return self
        return replace(
            self, **{name: text and text[: LONGEST[name]] for name, text in reported.items()}
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider said of its own limits; None where it said nothing.

    `calls_per_second`: how many calls it takes. `daily`, `monthly`: how many emails.
    `sent_today`: how many emails of the daily limit it counts as used.
    """

    calls_per_second: float | None = None
    daily: int | None = None
    monthly: int | None = None
    sent_today: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a try, on its way to the database."""

    email: ClaimedEmail
    result: Result
    duration_ms: int | None = None
    call_size: int | None = None

    def as_json(self) -> Mapping[str, Any]:
        """The outcome as `mailgres.finish` takes it."""
        result, wait = self.result, self.result.retry_after
        reported: dict[str, Any] = {
            "id": str(self.email.id),
            "token": str(self.email.lease_token),
            "outcome": result.verdict,
            "provider_message_id": result.provider_message_id,
            "duration_ms": self.duration_ms,
        }
        if result.verdict != "sent":
            reported |= {
                "code": result.code,
                "message": result.message,
                "detail": result.detail,
                "batch_size": self.call_size,
                "retry_after": wait.total_seconds() if wait is not None else None,
                "account": result.account,
                "pinned": result.pinned,
                "suppress": result.suppress,
                "batch_refused": result.batch_refused,
                "called": result.called,
            }
        if result.refused_copies:
            reported["refused_copies"] = [asdict(one) for one in result.refused_copies]
        return reported


@dataclass(frozen=True, slots=True)
class Started:
    """The emails that may be sent, and those whose provider has to be checked before."""

    allowed: set[Claim]
    check_first: set[Claim]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an email by its outcome; `refused` if the lease was lost and nothing was.

    `retry_in`: how long it waits for its next try.
    """

    id: UUID
    status: str | None
    retries: int | None
    retry_in: timedelta | None
    dead_reason: str | None
    refused: str | None
