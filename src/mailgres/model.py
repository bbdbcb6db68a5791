"""The values in the worker's pipeline: an email as claimed, as sent, and its outcome.

All of them are frozen: each step makes a new value from the one before.
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
"""How an attempt ended: sent, or the class of the fault (see docs/lifecycle.md)."""


@dataclass(frozen=True, slots=True)
class ClaimedEmail:
    """An email under the lease of this worker. The fields are columns of `email_queue`.

    `batch_id`: the batch it was claimed in; None if it has a call of its own. A batch is retried
    whole and under the key of the batch, because the provider knows no other.
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
        """All To addresses, the recipient first."""
        return self.recipient_email, *(self.also_to or ())

    @property
    def others(self) -> tuple[str, ...]:
        """All further recipients: further To addresses and copies."""
        return (*(self.also_to or ()), *(self.cc or ()), *(self.bcc or ()))

    @property
    def claim(self) -> Claim:
        """The email and its lease: after a lost lease it may be claimed again."""
        return self.id, self.lease_token

    @property
    def key(self) -> str:
        """The idempotency key of its call: the same for every attempt of this generation."""
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
    """A rendered email: everything that a provider needs."""

    email: ClaimedEmail
    from_email: str
    reply_to: str | None
    subject: str
    html: str | None
    text: str | None
    attachments: Sequence[Attachment] = ()


LONGEST = {"code": 100, "message": 2000, "detail": 4000}
"""Characters of a provider's text that are read and kept."""


@dataclass(frozen=True, slots=True)
class RefusedCopy:
    """A further recipient that the provider refused, though it accepted the message."""

    code: str
    message: str
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """A provider's answer for one message. The text in `detail` is stored for operators only.

    `account`: the fault concerns the whole account, not this message.
    `pinned`: an earlier call is uncertain, so only this provider may retry.
    `suppress`: the address does not exist and must not be written to again.
    `batch_refused`: its whole batch was refused, perhaps because of another message.
    `retry_after`: how long the provider said to wait. A duration: clocks differ.
    `called`: false if the fault is ours and no call was made.
    `refused_copies`: the recipients that a sent message does not reach.
    `untried`: why a check could not test the credentials.
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
        """Return the same with texts of bounded length."""
        reported = {name: getattr(self, name) for name in LONGEST}
        if not any(text and len(text) > LONGEST[name] for name, text in reported.items()):
            return self
        return replace(
            self, **{name: text and text[: LONGEST[name]] for name, text in reported.items()}
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider said about its own limits; None where it said nothing.

    `calls_per_second`: how many calls it accepts. `daily`, `monthly`: how many emails.
    `sent_today`: how many emails it counts against the daily limit.
    """

    calls_per_second: float | None = None
    daily: int | None = None
    monthly: int | None = None
    sent_today: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt, to be written to the database."""

    email: ClaimedEmail
    result: Result
    duration_ms: int | None = None
    call_size: int | None = None

    def as_json(self) -> Mapping[str, Any]:
        """Return the outcome as `mailgres.finish` takes it."""
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
    """The emails that may be sent, or that their provider has to be checked first."""

    allowed: set[Claim]
    check_first: set[Claim]


@dataclass(frozen=True, slots=True)
class Settled:
    """What `finish` made of an email; `refused` if the lease was lost and nothing changed.

    `retry_in`: the delay before its next attempt.
    """

    id: UUID
    status: str | None
    retries: int | None
    retry_in: timedelta | None
    dead_reason: str | None
    refused: str | None
