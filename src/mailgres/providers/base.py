"""The interface of a provider, and the declaration of a kind of provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mailgres.model import Limits, Message, Result
    from mailgres.providers.faults import Rule
    from mailgres.values.kinds import Kind

    Keep = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do.

    `idempotent`: it accepts keys, so that a call whose outcome is unknown may be repeated.
    `fixed_batches`: a call with several emails has one key, so it is repeated with the same emails
    in the same order, or not at all.
    """

    batch_size: int = 1
    idempotent: bool = False
    fixed_batches: bool = False
    attachments: bool = True


class NotMade(Exception):
    """Raised by `send`: it counts as if no call was made.

    The emails go back into the queue and no retry is spent. `capture` raises it while the database
    is unreachable.
    """


class Provider(Protocol):
    """Sends messages. Several threads use it at the same time."""

    @property
    def name(self) -> str:
        """Its name in the database, and in routes."""
        ...

    @property
    def kind(self) -> str:
        """The kind of provider: a key of the registry."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Its capabilities."""
        ...

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send up to `batch_size` messages in one call, and return a result for each, in order.

        A fault of the call is a result, not an exception. An exception is a bug; the outcome then
        counts as unknown.
        """
        ...

    def limits(self) -> Limits | None:
        """Return the limits that it reported, if any; workers read them and share them."""
        ...

    def check(self) -> Result:
        """Check the credentials without sending anything; `sent` means that they are valid."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """A setting of a kind of provider: `{kind}_{name}` in the settings, `name` of an account.

    `also`: variables of other programs that mean the same. `needed`: an account cannot send without
    it. `shared`: an account that does not set it uses the value of its kind. `receives`: it is for
    the webhook of the account, not for sending.
    """

    name: str
    value: Kind[Any]
    about: str
    default: object = None
    also: tuple[str, ...] = ()
    secret: bool = False
    needed: bool = False
    shared: bool = False
    receives: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """An account at a provider, with the options that are set. Its text holds no secret."""

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a worker passes to a provider.

    `timeout`: seconds that a call may take. `connections`: how many calls are made at once.
    `keep`: stores messages in the database, for the provider `capture`, and returns the faults that
    it has to simulate.
    """

    timeout: float
    connections: int
    keep: Keep


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """The declaration of a kind of provider.

    `open`: creates the provider of an account without connecting; only this function imports the
    kind's library. `rules`: classify the faults of its calls. `captures`: emails are stored in the
    database, not sent. `advice`: what to do about refused credentials. `spf`: what the SPF record
    of a sender's domain needs. `mail_from`: the subdomain that has the SPF record, if the provider
    sends from one. `dkim`: the name below the domain that has the provider's DKIM key, if known.
    """

    kind: str
    title: str
    open: Callable[[Account, Runtime], Provider]
    options: tuple[Option, ...] = ()
    rules: Sequence[Rule] = ()
    protocol: Literal["http", "smtp"] = "http"
    captures: bool = False
    advice: str = ""
    spf: str | None = None
    mail_from: str | None = None
    dkim: str | None = None
